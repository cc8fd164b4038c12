package console

import (
	"html/template"
	"net/http"
	"time"

	"errand/internal/style"
)

// zoneOf is the time zone in which a reader wants times: the browser's, which the script says in a cookie, and UTC without scripts.
func zoneOf(r *http.Request) *time.Location {
	if named, err := r.Cookie("errand-zone"); err == nil {
		if zone, err := time.LoadLocation(named.Value); err == nil {
			return zone
		}
	}
	return time.UTC
}

// times are the functions of templates that write times in a zone.
func times(zone *time.Location) template.FuncMap {
	format := func(t time.Time, layout string) string { return t.In(zone).Format(layout) }
	tag := func(t time.Time, text string) template.HTML {
		if t.IsZero() {
			return "–"
		}
		//nolint:gosec // no text of others
		return template.HTML(`<time datetime="` + t.UTC().Format(time.RFC3339Nano) + `" title="` + format(t, "2 Jan 2006, 15:04:05 MST") +
			`">` + text + `</time>`)
	}
	return template.FuncMap{
		"age": func(at time.Time) template.HTML { return tag(at, style.Ago(time.Since(at))) },
		"time": func(at time.Time) template.HTML { // with its day unless that is today
			if format(at, time.DateOnly) == format(time.Now(), time.DateOnly) {
				return tag(at, format(at, time.TimeOnly))
			}
			return tag(at, format(at, "2 Jan 15:04"))
		},
		"hour": func(at time.Time) string { return format(at, "15:04") },
	}
}

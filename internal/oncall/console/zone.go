package console

import (
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"time"

	"errand/internal/oncall/access"
	"errand/internal/style"
)

// zoneCookie keeps the time zone that a reader chose. At first the script sets it to the browser's.
const zoneCookie = "errand-zone"

// zoneOf is the time zone in which a reader wants times, UTC where none is chosen.
func zoneOf(r *http.Request) *time.Location {
	if chosen, err := r.Cookie(zoneCookie); err == nil {
		if zone, err := time.LoadLocation(chosen.Value); err == nil {
			return zone
		}
	}
	return time.UTC
}

func (s *Server) setZone(w http.ResponseWriter, r *http.Request, user access.User) {
	zone, err := time.LoadLocation(r.FormValue("zone"))
	back, unread := url.Parse(r.FormValue("back"))
	if err != nil || unread != nil {
		s.show(w, r, user, s.errorPage(wrong("That is not a time zone such as Asia/Kuala_Lumpur or UTC.")), "")
		return
	}
	//nolint:gosec // no secret, and the script sets it too
	http.SetCookie(w, &http.Cookie{Name: zoneCookie, Value: zone.String(), Path: "/", MaxAge: 400 * 24 * 3600, SameSite: http.SameSiteLaxMode})
	http.Redirect(w, r, returnPath(back), http.StatusSeeOther)
}

// returnPath returns the path and query of a page of this console, "/" for anything else.
func returnPath(u *url.URL) string {
	path := u.RequestURI()
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.Contains(path, `\`) || len(path) > 1000 {
		return "/"
	}
	return path
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

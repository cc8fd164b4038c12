// Package schemas holds the JSON Schemas of all requests and events, one file a subject.
package schemas

import (
	"embed"
	"io/fs"
	"strings"
)

//go:generate go run errand/internal/schema/generate ..

// Files are the schemas, <subject>.json.
//
//go:embed *.json
var Files embed.FS

// Subjects are those with a schema, without an id, sorted.
func Subjects() []string {
	names, _ := fs.Glob(Files, "*.json") // the pattern is valid
	for i := range names {
		names[i] = strings.TrimSuffix(names[i], ".json")
	}
	return names
}

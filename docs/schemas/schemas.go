// Package schemas holds the JSON Schemas of all requests and events, one file a subject.
package schemas

import "embed"

//go:generate go run errand/internal/schema/generate ..

// Files are the schemas, <subject>.json.
//
//go:embed *.json
var Files embed.FS

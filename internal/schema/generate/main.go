// Command generate writes the schemas, the AsyncAPI document and the reference's tables of settings into docs/.
package main

import (
	"context"
	"os"
	"path/filepath"

	"errand/internal/programs"
	"errand/internal/schema"
)

func main() {
	programs.Main("generate", "Write the schemas, the AsyncAPI document and the tables of settings.", new(generate))
}

type generate struct {
	Docs string `arg:"" help:"The folder docs."`
}

// Run writes the files.
func (g *generate) Run(context.Context) error {
	reference := filepath.Join("use", "reference.md")
	document, err := os.ReadFile(filepath.Join(g.Docs, reference))
	if err != nil {
		return err
	}
	document, err = withSettings(document)
	if err != nil {
		return err
	}
	files, err := schema.Files(document)
	if err != nil {
		return err
	}
	files[reference] = document
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(g.Docs, name), text, 0o644); err != nil { //nolint:gosec // everybody may read the documents
			return err
		}
	}
	return nil
}

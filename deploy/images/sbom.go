package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// writeSBOM writes the software bill of materials of a program for one architecture, CycloneDX 1.6 as JSON: the modules and
// the Go that the binary lists, their licences, and which needs which. The same binary always has the same bytes.
func (o *buildOrder) writeSBOM(program, arch, binary string, modules map[string]*module) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: o.created.Format(time.RFC3339),
		Component: &cdx.Component{Type: cdx.ComponentTypeApplication, Name: program, Version: o.Version, BOMRef: program}}
	components := []cdx.Component{library("stdlib", info.GoVersion[len("go"):], "")}
	for _, module := range info.Deps {
		components = append(components, library(module.Path, module.Version, module.Sum))
	}
	refs := map[string]string{"": program}
	for i, c := range components {
		refs[c.Name] = c.BOMRef
		if modules[c.Name] == nil {
			return fmt.Errorf("%s links %s, which go list does not name", program, c.Name)
		}
		licences := cdx.Licenses{}
		for _, id := range slices.Sorted(maps.Keys(modules[c.Name].licences)) {
			licences = append(licences, cdx.LicenseChoice{License: &cdx.License{ID: id}})
		}
		components[i].Licenses = &licences
	}
	bom.Components = &components
	var relations []cdx.Dependency
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		needs := []string{}
		for _, needed := range slices.Sorted(maps.Keys(modules[name].needs)) {
			needs = append(needs, refs[needed])
		}
		relations = append(relations, cdx.Dependency{Ref: refs[name], Dependencies: &needs})
	}
	bom.Dependencies = &relations
	var text bytes.Buffer
	if err := cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return fmt.Errorf("write the bill of materials of %s: %w", program, err)
	}
	return os.WriteFile(filepath.Join(o.Out, program+"-"+arch+".cdx.json"), text.Bytes(), 0o644) //nolint:gosec // images are not secret
}

// library is a Go module as a component, named by a package URL (https://github.com/package-url/purl-spec).
func library(module, version, sum string) cdx.Component {
	url := "pkg:golang/" + module + "@" + version
	c := cdx.Component{Type: cdx.ComponentTypeLibrary, Name: module, Version: version, PackageURL: url, BOMRef: url}
	if sum != "" { // go.sum's hash is of the module's files, not of one file
		c.Properties = &[]cdx.Property{{Name: "go:sum", Value: sum}}
	}
	return c
}

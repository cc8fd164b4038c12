package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// module is a Go module that a program links, or Go itself, by the name that its bill of materials has.
type module struct {
	texts    map[string]string   // licences and notices, by file
	licences map[string]bool     // what these texts are, by SPDX's identifiers
	needs    map[string]struct{} // modules that its linked packages import
}

// listed is a package as `go list` shows it.
type listed struct {
	ImportPath, Dir, Root string
	Standard              bool
	Imports               []string
	Module                *struct {
		Path, Dir string
		Main      bool
	}
}

// module returns the name and the folder of the package's module; the project's own is the empty name.
func (p *listed) module() (name, dir string) {
	switch {
	case p.Standard:
		return "stdlib", p.Root
	case p.Module.Main:
		return "", ""
	}
	return p.Module.Path, p.Module.Dir
}

// legal are the files that go where the code goes.
var legal = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents|unlicense)([.-].*)?$`)

// linked returns the modules of a program, with the texts beside its packages and above them.
func (o *buildOrder) linked(program, arch string) (map[string]*module, error) {
	output, err := o.goTool(arch, "list", "-deps", "-tags=nodemo", "-json=ImportPath,Dir,Root,Standard,Imports,Module", "./cmd/"+program)
	if err != nil {
		return nil, err
	}
	var packages []listed
	of, modules := map[string]string{}, map[string]*module{}
	for dec := json.NewDecoder(bytes.NewReader(output)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		packages = append(packages, p)
		name, dir := p.module()
		of[p.ImportPath] = name
		if modules[name] == nil {
			modules[name] = &module{map[string]string{}, map[string]bool{}, map[string]struct{}{}}
		}
		for at := p.Dir; dir != "" && strings.HasPrefix(at, dir); at = filepath.Dir(at) {
			if err := modules[name].read(dir, at); err != nil {
				return nil, err
			}
		}
	}
	for _, p := range packages {
		for _, path := range p.Imports {
			if from, to := of[p.ImportPath], of[path]; from != to && to != "" {
				modules[from].needs[to] = struct{}{}
			}
		}
	}
	for name, m := range modules {
		if name != "" && len(m.licences) == 0 {
			return nil, fmt.Errorf("%s: no licence found among %q", name, slices.Collect(maps.Keys(m.texts)))
		}
	}
	return modules, nil
}

// read takes in the texts of one folder of a module.
func (m *module) read(module, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name, err := filepath.Rel(module, filepath.Join(dir, e.Name()))
		if err != nil || m.texts[name] != "" || e.IsDir() || !legal.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		m.texts[name] = strings.TrimSpace(strings.ReplaceAll(string(text), "\r\n", "\n"))
		for licence, phrase := range phrases {
			if phrase.MatchString(m.texts[name]) {
				m.licences[licence] = true
			}
		}
		if m.licences["BSD-3-Clause"] { // which begins with all of the other
			delete(m.licences, "BSD-2-Clause")
		}
	}
	return nil
}

// phrases tell licences apart, by SPDX's identifiers. A module in which none is found is refused.
var phrases = map[string]*regexp.Regexp{
	"Apache-2.0":   regexp.MustCompile(`Apache License\s+Version 2\.0, January 2004`),
	"BSD-2-Clause": regexp.MustCompile(`Redistribution and use in source and binary forms`),
	"BSD-3-Clause": regexp.MustCompile(`(?s)Redistribution and use in source and binary forms.*Neither the name`),
	"CC0-1.0":      regexp.MustCompile(`^Creative Commons Legal Code\s+CC0 1\.0 Universal`),
	"ISC":          regexp.MustCompile(`Permission to use, copy, modify, and(/or)? distribute this software`),
	"MIT":          regexp.MustCompile(`Permission is hereby granted, free of charge, to any person obtaining`),
	"MPL-2.0":      regexp.MustCompile(`Mozilla Public License,? [Vv]ersion 2\.0`),
	"blessing":     regexp.MustCompile(`SQLite Is Public Domain`),
}

// notice is the text that goes with a program: every licence and notice once, behind those whose it is.
func notice(modules map[string]*module) []byte {
	whose := map[string][]string{}
	for name, m := range modules {
		for file, text := range m.texts {
			whose[text] = append(whose[text], name+" ("+file+")")
		}
	}
	heads := map[string]string{}
	for text, names := range whose {
		slices.Sort(names)
		heads[strings.Join(names, "\n")] = text
	}
	var out bytes.Buffer
	out.WriteString("This image contains software of others, under the licences below. Its CA certificates are Mozilla's, from\n" +
		"https://hg.mozilla.org/releases/mozilla-release, under the Mozilla Public License 2.0: https://mozilla.org/MPL/2.0/\n")
	line := strings.Repeat("=", 80)
	for _, head := range slices.Sorted(maps.Keys(heads)) {
		fmt.Fprintf(&out, "\n%s\n%s\n%s\n\n%s\n", line, head, line, heads[head])
	}
	return out.Bytes()
}

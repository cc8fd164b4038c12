package arch

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A promise is as good as the test that holds it.
func TestEveryGuaranteeNamesTestsThatExist(t *testing.T) {
	exist := map[string]bool{}
	for _, s := range parsed(t) {
		for _, decl := range s.file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && s.test && fn.Recv == nil {
				exist[fn.Name.Name] = true
			}
		}
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w*)`")
	promises := regexp.MustCompile(`(?m)^## \d`).Split(string(text), -1)[1:]
	if len(promises) < 5 {
		t.Fatalf("%d promises found", len(promises))
	}
	for _, promise := range promises {
		title, _, _ := strings.Cut(promise, "\n")
		tests := named.FindAllStringSubmatch(promise, -1)
		if len(tests) == 0 {
			t.Errorf("no test holds%s", title)
		}
		for _, test := range tests {
			if !exist[test[1]] {
				t.Errorf("%s does not exist; it is to hold%s", test[1], title)
			}
		}
	}
}

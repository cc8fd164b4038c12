package arch

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A guarantee is only as good as its test.
func TestEveryGuaranteeNamesTestsThatExist(t *testing.T) {
	exist := map[string]bool{}
	for _, s := range parsed(t) {
		for _, decl := range s.file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && s.test && fn.Recv == nil {
				exist[fn.Name.Name] = true
			}
		}
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "why", "guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w*)`")
	guarantees := regexp.MustCompile(`(?m)^## \d`).Split(string(text), -1)[1:]
	if len(guarantees) < 5 {
		t.Fatalf("%d guarantees found", len(guarantees))
	}
	for _, guarantee := range guarantees {
		title, _, _ := strings.Cut(guarantee, "\n")
		tests := named.FindAllStringSubmatch(guarantee, -1)
		if len(tests) == 0 {
			t.Errorf("no test is named for%s", title)
		}
		for _, test := range tests {
			if !exist[test[1]] {
				t.Errorf("%s does not exist; it is named for%s", test[1], title)
			}
		}
	}
}

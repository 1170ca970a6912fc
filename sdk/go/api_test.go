package sluicegate

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestTheInterfaceIsThatOfApiTxt keeps api.txt, so that a change of what programs use is seen where changes are read.
func TestTheInterfaceIsThatOfApiTxt(t *testing.T) {
	var packages []string
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		hidden := path != "." && strings.HasPrefix(entry.Name(), ".")
		if err == nil && entry.IsDir() && (hidden || slices.Contains([]string{"internal", "examples", "testdata", "scripts"}, entry.Name())) {
			return fs.SkipDir
		}
		if err == nil && entry.IsDir() {
			packages = append(packages, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, path := range packages {
		got.WriteString(interfaceOf(t, path))
	}
	if os.Getenv("SLUICEGATE_WRITE") == "1" {
		if err := os.WriteFile("api.txt", []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, _ := os.ReadFile("api.txt")
	if got.String() == string(want) {
		return
	}
	before, after := strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")
	for i, line := range after {
		if i >= len(before) || line != before[i] {
			t.Fatalf("api.txt is of an earlier interface: line %d is now %q; SLUICEGATE_WRITE=1 writes it anew", i+1, line)
		}
	}
	t.Fatal("api.txt is of an earlier interface: it says more; SLUICEGATE_WRITE=1 writes it anew")
}

// interfaceOf returns the exported declarations of a package, without bodies and comments.
func interfaceOf(t *testing.T, folder string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	printing := printer.Config{Mode: printer.TabIndent | printer.UseSpaces, Tabwidth: 8}
	set, name, all := token.NewFileSet(), "", []string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		name = parsed.Name.Name
		if !ast.FileExports(parsed) {
			continue
		}
		for _, decl := range parsed.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok {
				if f.Recv != nil && !ast.IsExported(receiver(f.Recv.List[0].Type)) {
					continue
				}
				f.Body = nil
			} else if decl.(*ast.GenDecl).Tok == token.IMPORT {
				continue
			}
			var out bytes.Buffer
			if err := printing.Fprint(&out, set, decl); err != nil {
				t.Fatal(err)
			}
			all = append(all, strings.ReplaceAll(out.String(), "\n\n", "\n"))
		}
	}
	if len(all) == 0 {
		return ""
	}
	slices.Sort(all)
	return "package " + name + " // " + filepath.ToSlash(folder) + "\n\n" + strings.Join(all, "\n") + "\n\n"
}

// receiver returns the name of the type of a method.
func receiver(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return receiver(of.X)
	case *ast.IndexExpr:
		return receiver(of.X)
	case *ast.Ident:
		return of.Name
	default:
		return ""
	}
}

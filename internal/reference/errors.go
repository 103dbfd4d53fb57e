package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/processlog"
)

var packagesWithErrors = []string{".", "admin", "processlog", "httpcall", "encrypt", "adopt", "intake", "orms/gormtx", "relay/rabbitmq", "relay/watermill"}

type failure struct {
	name string
	text string
	doc  string
	typ  bool
}

func errorsPage(root string) (string, error) {
	var all []failure
	inLog, err := errorsOf(root, "processlog")
	if err != nil {
		return "", err
	}
	known := make(map[string]bool)
	for _, dir := range packagesWithErrors {
		found, err := errorsOf(root, dir)
		if err != nil {
			return "", err
		}
		for _, name := range slices.Sorted(maps.Keys(found)) {
			f := found[name]
			original, alias := inLog[name]
			if alias && f.text == "" && dir != "processlog" {
				f.text, f.typ, f.doc = original.text, original.typ, longer(f.doc, original.doc)
				known[name] = true
			}
			if dir == "." {
				f.name = "compensator." + name
			} else if dir == "processlog" && known[name] {
				continue
			}
			all = append(all, f)
		}
	}
	var out strings.Builder
	out.WriteString("# Errors\n\n" + generated)
	out.WriteString("Search this page for the name of an error or for a part of its text.\n" +
		"In your code compare errors with `errors.Is` and `errors.As`, because texts may change. Both also find the errors of the database and of Redis.\n\n")
	used := make(map[string]bool)
	for _, f := range all {
		advice, ok := errorAdvice[f.name]
		if !ok {
			return "", fmt.Errorf("internal/reference does not say what to do about %s", f.name)
		}
		used[f.name] = true
		_, short, _ := strings.Cut(f.name, ".")
		title := short
		if !strings.HasPrefix(f.name, "compensator.") {
			title = f.name
		}
		fmt.Fprintf(&out, "## %s\n\n", title)
		kind := "`errors.Is`, `" + f.name + "`"
		if f.typ {
			kind = "`errors.As`, `*" + f.name + "`"
		}
		fmt.Fprintf(&out, "%s\n\n", kind)
		if examples := errorTexts[f.name]; examples != nil {
			f.text = strings.Join(textsOf(examples), "\n")
		}
		if f.text != "" {
			fmt.Fprintf(&out, "```text\n%s\n```\n\n", f.text)
		}
		fmt.Fprintf(&out, "**Cause.** %s\n\n**What to do.** %s\n\n", advice.cause, advice.do)
	}
	for name := range errorAdvice {
		if !used[name] {
			return "", fmt.Errorf("internal/reference describes %s, which no package exports", name)
		}
	}
	return strings.TrimRight(out.String(), "\n") + "\n", nil
}

var entry42 = func() processlog.ID {
	id, err := processlog.ParseID("42")
	if err != nil {
		panic(err)
	}
	return id
}()

var errorTexts = map[string][]error{
	"compensator.FieldError": {&processlog.FieldError{Field: "Lease", Reason: "10ms: want at least 1s"}},
	"compensator.StateError": {
		&processlog.StateError{ID: entry42, IdempotencyKey: "close-42", Action: processlog.ActionCancel, State: processlog.Succeeded},
		&processlog.StateError{ID: entry42, IdempotencyKey: "close-42", Action: processlog.ActionCancel, State: processlog.Dead, CompensationBegun: true},
		&processlog.StateError{ID: entry42, IdempotencyKey: "close-42", Action: processlog.ActionRequeue, State: processlog.Dead, Erased: true},
	},
	"compensator.PanicError": {&processlog.PanicError{Value: "index out of range"}, &processlog.PanicError{}},
	"compensator.StuckError": {&processlog.StuckError{Stuck: []processlog.StuckAttempt{{ID: entry42, BusinessType: "close_order", Running: 40 * time.Second}}}},
	"processlog.LossError":   {&processlog.LossError{Lost: []processlog.LostEntry{{ID: entry42, IdempotencyKey: "close-42"}}}},
	"admin.UncheckedError":   {&admin.UncheckedError{Unknown: []processlog.ID{entry42}}, &admin.UncheckedError{Finished: []processlog.ID{entry42}}},
}

func textsOf(examples []error) (texts []string) {
	for _, err := range examples {
		line, _, _ := strings.Cut(err.Error(), "\n")
		texts = append(texts, line)
	}
	return texts
}

func errorsOf(root, dir string) (map[string]failure, error) {
	s, err := parsePackage(root, dir)
	if err != nil {
		return nil, err
	}
	found := make(map[string]failure)
	add := func(name, text, doc string, typ bool) {
		found[name] = failure{name: s.files[0].Name.Name + "." + name, text: text, doc: doc, typ: typ}
	}
	texts := make(map[string]string)
	for _, file := range s.files {
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv != nil && f.Name.Name == "Error" {
				texts[strings.TrimPrefix(s.text(f.Recv.List[0].Type), "*")] = formatOf(f)
			}
		}
	}
	s.specs(token.VAR, func(spec ast.Spec, doc string) {
		for i, id := range spec.(*ast.ValueSpec).Names {
			if strings.HasPrefix(id.Name, "Err") && id.IsExported() && i < len(spec.(*ast.ValueSpec).Values) {
				add(id.Name, literal(spec.(*ast.ValueSpec).Values[i]), doc, false)
			}
		}
	})
	s.specs(token.TYPE, func(spec ast.Spec, doc string) {
		typ := spec.(*ast.TypeSpec)
		text, isError := texts[typ.Name.Name]
		if typ.Assign != token.NoPos && strings.HasSuffix(typ.Name.Name, "Error") {
			isError = true
		}
		if typ.Name.IsExported() && isError {
			add(typ.Name.Name, text, doc, true)
		}
	})
	return found, nil
}

func literal(e ast.Expr) string {
	call, ok := e.(*ast.CallExpr)
	if !ok || len(call.Args) == 0 {
		return ""
	}
	text, ok := call.Args[0].(*ast.BasicLit)
	if !ok {
		return ""
	}
	value, err := strconv.Unquote(text.Value)
	if err != nil {
		return ""
	}
	for _, arg := range call.Args[1:] {
		if id, ok := arg.(*ast.Ident); ok {
			value = strings.Replace(value, "%w", "<"+id.Name+">", 1)
		}
	}
	return value
}

func formatOf(f *ast.FuncDecl) (longest string) {
	ast.Inspect(f.Body, func(node ast.Node) bool {
		text, ok := node.(*ast.BasicLit)
		if !ok || text.Kind != token.STRING {
			return true
		}
		if value, err := strconv.Unquote(text.Value); err == nil && len(value) > len(longest) {
			longest = value
		}
		return true
	})
	for _, verb := range []string{"%q", "%s", "%v", "%d"} {
		longest = strings.ReplaceAll(longest, verb, "…")
	}
	longest, _, _ = strings.Cut(longest, "\n")
	return longest
}

func longer(a, b string) string {
	if len(b) > len(a) {
		return b
	}
	return a
}

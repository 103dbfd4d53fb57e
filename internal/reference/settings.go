package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"regexp"
	"strings"
)

var packagesWithSettings = []string{".", "admin", "ui", "serve", "httpcall", "intake", "adopt", "encrypt", "otel", "relay/rabbitmq", "relay/watermill", "cron", "orms/gormtx"}

var (
	settingStruct = regexp.MustCompile(`(^compensator\.(Limit|Rate)|Config|Options|Breaker|Operations)$`)
	saidDefault   = regexp.MustCompile(`\b[Dd]efault:? +((?:"[^"]*"|\([^)]*\)|[.,]\S|[^.,;:(])+)`)
)

func settingsPage(root string) (string, error) {
	var out strings.Builder
	out.WriteString("# Settings\n\n" + generated)
	out.WriteString("Each setting has its type, its default and its effect. The zero value of a field means its default.\n`New` and `Handle` refuse values out of range, and report all such fields at once.\n\n")
	packages, known := make([]*source, 0, len(packagesWithSettings)), make(names)
	for _, dir := range packagesWithSettings {
		s, err := parsePackage(root, dir)
		if err != nil {
			return "", err
		}
		packages = append(packages, s)
		maps.Copy(known, s.exported())
	}
	for i, dir := range packagesWithSettings {
		text, err := packages[i].settings(dir, known)
		if err != nil {
			return "", err
		}
		out.WriteString(text)
	}
	return strings.TrimRight(out.String(), "\n") + "\n", nil
}

func (s *source) settings(dir string, known names) (text string, failed error) {
	var out strings.Builder
	defaults, least := s.defaults(), s.least()
	name := s.files[0].Name.Name
	s.specs(token.TYPE, func(spec ast.Spec, doc string) {
		typ := spec.(*ast.TypeSpec)
		fields, ok := typ.Type.(*ast.StructType)
		if !ok || !typ.Name.IsExported() || !settingStruct.MatchString(name+"."+typ.Name.Name) {
			return
		}
		title := typ.Name.Name
		if dir != "." {
			title = name + "." + title
		}
		words := known.with(fields)
		describe := func(comment, subject string) string {
			return markdown(comment, func(text string) string { return words.code(text, subject) })
		}
		fmt.Fprintf(&out, "## %s\n\n`%s`\n\n%s\n\n", title, s.importPath, describe(doc, typ.Name.Name))
		for _, field := range fields.Fields.List {
			for _, id := range field.Names {
				if !id.IsExported() {
					continue
				}
				comment := strings.TrimSpace(field.Doc.Text() + "\n\n" + field.Comment.Text())
				value, err := defaultOf(title+"."+id.Name, comment, defaults[typ.Name.Name+"."+id.Name])
				if err != nil {
					failed = err
				}
				if smallest := least[typ.Name.Name+"."+id.Name]; smallest != "" {
					value += ", at least " + smallest
				}
				fmt.Fprintf(&out, "### %s.%s\n\n`%s`%s\n\n", title, id.Name, short(s.text(field.Type)), value)
				if described := withoutDefault(comment, value); described != "" {
					fmt.Fprintf(&out, "%s\n\n", describe(described, id.Name))
				}
			}
		}
	})
	return out.String(), failed
}

func short(typ string) string { return strings.Join(strings.Fields(typ), " ") }

// defaultOf returns the default of a field, as text for the page. The parameter code is the default in the program, or
// empty. defaultOf returns an error if the comment of the field does not name the default in the program.
func defaultOf(field, comment, code string) (string, error) {
	said := saidDefault.FindStringSubmatch(strings.Join(strings.Fields(comment), " "))
	if code != "" && (said == nil || !strings.HasPrefix(strings.TrimPrefix(strings.TrimSpace(said[1]), "is "), code)) {
		return "", fmt.Errorf("the default of %s is %s, and its comment does not say so: %q", field, code, comment)
	}
	if said == nil {
		return "", nil
	}
	value := strings.TrimPrefix(strings.TrimSpace(said[1]), "is ")
	if len(strings.Fields(value)) > 4 || strings.HasPrefix(value, "there ") {
		return "", nil
	}
	if code != "" {
		value = code
	}
	return ", default " + special.ReplaceAllString(value, `\$0`), nil
}

var (
	onlyDefault = regexp.MustCompile(`\n\n[Dd]efault [^.]*\.?$`)
	lastDefault = regexp.MustCompile(`([.;])\s+(?:[Dd]efault:?|[Tt]he\s+default\s+is)\s+([^;]*?)\.?$`)
)

// withoutDefault returns the comment without its last sentence if this sentence only repeats the default in shown.
func withoutDefault(comment, shown string) string {
	if short := onlyDefault.FindString(comment); short != "" && !strings.Contains(short, ";") && !strings.Contains(short, ",") {
		return strings.TrimSuffix(comment, short)
	}
	last := lastDefault.FindStringSubmatch(comment)
	if last == nil || shown == "" {
		return comment
	}
	said := ", default " + special.ReplaceAllString(strings.Join(strings.Fields(last[2]), " "), `\$0`)
	before := strings.TrimSuffix(comment, last[0]) + "."
	if strings.HasPrefix(shown, said) {
		return before
	}
	if more, ok := strings.CutPrefix(said, shown+", "); ok && strings.HasPrefix(more, "at ") {
		return before + " " + strings.ToUpper(more[:1]) + more[1:] + "."
	}
	return comment
}

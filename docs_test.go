package compensator_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	namedInDocs  = regexp.MustCompile("`([^`\n]+)`")
	fileName     = regexp.MustCompile(`^[\w./-]*\w\.(go|lua|pml|sh|sql)$`)
	testName     = regexp.MustCompile(`^(Test|Fuzz|Benchmark)[A-Z]\w*$`)
	testDeclared = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(\w+ \*testing\.`)
)

func TestDocsNameOnlyWhatExists(t *testing.T) {
	files, tests := sourceTree(t)
	for _, page := range markdownPages(t) {
		if !strings.HasPrefix(page, "docs/") && !slices.Contains([]string{"README.md", "README.zh-CN.md", "CONTRIBUTING.md", "proof/model/README.md"}, page) {
			continue
		}
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, match := range namedInDocs.FindAllStringSubmatch(string(text), -1) {
			test, _, _ := strings.Cut(match[1], "/")
			switch name := match[1]; {
			case fileName.MatchString(name):
				assert.Truef(t, slices.ContainsFunc(files, func(f string) bool { return f == name || strings.HasSuffix(f, "/"+name) }), "%s names %s", page, name)
			case testName.MatchString(test):
				assert.Truef(t, tests[test], "%s names %s", page, name)
			}
		}
	}
}

func sourceTree(t *testing.T) (files []string, tests map[string]bool) {
	tests = make(map[string]bool)
	require.NoError(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			if entry != nil && slices.Contains([]string{".git", "build", "node_modules"}, entry.Name()) {
				return fs.SkipDir
			}
			return err
		}
		files = append(files, filepath.ToSlash(path))
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, match := range testDeclared.FindAllStringSubmatch(string(text), -1) {
			tests[match[1]] = true
		}
		return err
	}))
	return files, tests
}

var (
	failureRow    = regexp.MustCompile(`(?m)^\| (F\d+) \|(.+)\|$`)
	failureMark   = regexp.MustCompile(`^// Failure: (F\d+(?:, F\d+)*)$`)
	markedTest    = regexp.MustCompile(`^func (?:\(\w+ \*\w+Test\) \w+\(|(?:Test|Fuzz)[A-Z]\w*\(\w+ \*testing\.[TF][,)])`)
	failuresKnown = regexp.MustCompile(`(\d+) known ways to fail`)
	planned       = regexp.MustCompile(`(?m)^[^#\n|]+\|[^|\n]+\|([^|\n]+)\|`)
	searches      = regexp.MustCompile(`(\d+) searches`)
)

// Each mark, for example "Failure: F12", must stand directly above its test.
func TestDocsHaveATestForEachFailure(t *testing.T) {
	files, _ := sourceTree(t)
	marked := make(map[string][]string)
	for _, file := range files {
		if !strings.HasSuffix(file, ".go") {
			continue
		}
		lines := strings.Split(page(t, file), "\n")
		for i, line := range lines {
			if !strings.HasPrefix(line, "// Failure:") {
				continue
			}
			mark := failureMark.FindStringSubmatch(line)
			require.NotNilf(t, mark, "%s:%d: %s", file, i+1, line)
			require.Regexpf(t, markedTest, lines[i+1], "%s:%d: what stands below is no test", file, i+1)
			for row := range strings.SplitSeq(mark[1], ", ") {
				marked[row] = append(marked[row], file)
			}
		}
	}
	known := make(map[string]bool)
	for _, row := range failureRow.FindAllStringSubmatch(page(t, "docs/internals/failures.md"), -1) {
		number, text := row[1], row[2]
		require.Falsef(t, known[number], "%s stands there twice", number)
		known[number] = true
		if strings.Contains(text, "No test checks this, only the review of each change.") {
			require.Emptyf(t, marked[number], "%s has a test", number)
		} else {
			require.NotEmptyf(t, marked[number], "no test has the mark of %s:%s", number, text)
		}
	}
	for number, files := range marked {
		require.Truef(t, known[number], "%s, in %v, is no row of docs/internals/failures.md", number, files)
	}
}

func TestDocsCountWhatThereIs(t *testing.T) {
	reliability := page(t, "docs/internals/reliability.md")
	failures := len(failureRow.FindAllString(page(t, "docs/internals/failures.md"), -1))
	require.Equal(t, strconv.Itoa(failures), failuresKnown.FindStringSubmatch(reliability)[1], "rows of failures.md")
	planned, promises := planned.FindAllStringSubmatch(page(t, "proof/model/plan"), -1), 0
	for _, line := range planned {
		promises += len(strings.Fields(line[1]))
	}
	for _, text := range []string{reliability, page(t, "proof/model/README.md")} {
		said := searches.FindStringSubmatch(text)
		require.Equal(t, strconv.Itoa(promises), said[1], "searches of the model")
	}
}

func TestEachGuaranteeSaysWhatShowsIt(t *testing.T) {
	_, promises, _ := strings.Cut(page(t, "docs/internals/guarantees.md"), "\n### ")
	for promise := range strings.SplitSeq(promises, "\n### ") {
		require.Contains(t, promise, "*Shown by*", "%.40s", promise)
	}
}

func TestEachGuaranteeIsShortForUsers(t *testing.T) {
	promise := regexp.MustCompile(`(?m)^### (G\d+\. .+)$`)
	full, short := page(t, "docs/internals/guarantees.md"), page(t, "docs/reference/guarantees.md")
	require.Equal(t, promise.FindAllString(full, -1), promise.FindAllString(short, -1))
	_, promises, _ := strings.Cut(short, "\n### ")
	promises, _, _ = strings.Cut(promises, "\n## ")
	for text := range strings.SplitSeq(promises, "\n### ") {
		title, text, _ := strings.Cut(text, "\n")
		assert.LessOrEqualf(t, len(strings.Fields(text)), 70, "words of %s", title)
	}
}

func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}

var (
	markdownLink  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headingLine   = regexp.MustCompile(`(?m)^#{1,6} +(.+?)(?: \{#([\w-]+)\})?$`)
	namedAnchor   = regexp.MustCompile(`<a id="([\w-]+)">`)
	fencedBlock   = regexp.MustCompile("(?ms)^```.*?^```$")
	commentBehind = regexp.MustCompile(`(?m) +# .*$`)
	linkInTitle   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	notInAnchor   = regexp.MustCompile(`[^\p{L}\p{M}\p{N}_\- ]`)
	tableRow      = regexp.MustCompile(`(?m)^ *\|`)
	listedPage    = regexp.MustCompile(`link: '(/[\w/.-]*)'`)
)

func markdownPages(t *testing.T) (pages []string) {
	require.NoError(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "build", "node_modules", "testdata", "dist", "cache"}, entry.Name()):
			return fs.SkipDir
		case strings.HasSuffix(path, ".md"):
			pages = append(pages, filepath.ToSlash(path))
		}
		return nil
	}))
	return pages
}

// anchors returns the anchors that GitHub and the site derive from the headings of a page.
func anchors(text string) map[string]bool {
	found := make(map[string]bool)
	for _, match := range headingLine.FindAllStringSubmatch(fencedBlock.ReplaceAllString(text, ""), -1) {
		if match[2] != "" {
			found[match[2]] = true
			continue
		}
		title := linkInTitle.ReplaceAllString(match[1], "$1")
		anchor := strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), ""), " ", "-")
		found[anchor] = true
	}
	for _, match := range namedAnchor.FindAllStringSubmatch(text, -1) {
		found[match[1]] = true
	}
	return found
}

var (
	wordOfProse = regexp.MustCompile(`[\p{L}\p{N}][\p{L}\p{N}'’.\-/]*`)
	hanOfProse  = regexp.MustCompile(`\p{Han}`)
	notProse    = regexp.MustCompile("(?s)```.*?```|<!--.*?-->|!\\[[^\\]]*\\]\\([^)]*\\)|\\]\\([^)]*\\)")
)

// In the Chinese README the test counts characters, and allows one and a half times as many.
func TestDocsReadmeHasAtMost600Words(t *testing.T) {
	english := notProse.ReplaceAllString(page(t, "README.md"), " ")
	assert.LessOrEqual(t, len(wordOfProse.FindAllString(english, -1)), 600)
	chinese := notProse.ReplaceAllString(page(t, "README.zh-CN.md"), " ")
	assert.LessOrEqual(t, len(hanOfProse.FindAllString(chinese, -1)), 900)
}

func TestDocsLinksResolve(t *testing.T) {
	for _, source := range markdownPages(t) {
		for _, match := range markdownLink.FindAllStringSubmatch(fencedBlock.ReplaceAllString(page(t, source), ""), -1) {
			target, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(target, ":") || strings.HasPrefix(target, "/") {
				continue
			}
			path := source
			if target != "" {
				path = filepath.ToSlash(filepath.Join(filepath.Dir(source), target))
			}
			info, err := os.Stat(path)
			if !assert.NoErrorf(t, err, "%s links to %s", source, match[1]) || anchor == "" || info.IsDir() || !strings.HasSuffix(path, ".md") {
				continue
			}
			assert.Truef(t, anchors(page(t, path))[anchor], "%s links to %s: no such heading", source, match[1])
		}
	}
}

func TestDocsSiteListsEveryPage(t *testing.T) {
	listed := []string{"docs/index.md", "docs/zh/index.md"}
	for _, match := range listedPage.FindAllStringSubmatch(page(t, "docs/.vitepress/pages.mts"), -1) {
		listed = append(listed, "docs"+match[1]+".md")
	}
	var there []string
	for _, path := range markdownPages(t) {
		if strings.HasPrefix(path, "docs/") && !strings.HasPrefix(path, "docs/internals/") {
			there = append(there, path)
		}
	}
	slices.Sort(listed)
	assert.ElementsMatch(t, there, slices.Compact(listed)) // some links of the Chinese site lead to English pages
}

func TestDocsAreTranslated(t *testing.T) {
	tutorials, err := filepath.Glob("docs/tutorials/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, tutorials)
	chinese := map[string]string{"README.md": "README.zh-CN.md"}
	for _, english := range append(tutorials, "docs/explanation/how-it-works.md") {
		chinese[english] = strings.Replace(english, "docs/", "docs/zh/", 1)
	}
	for _, translated := range markdownPages(t) {
		english := strings.Replace(translated, "docs/zh/", "docs/", 1)
		// The Chinese glossary has its own order, because it is read by topic. So it is not compared.
		if strings.HasPrefix(translated, "docs/zh/") && translated != "docs/zh/explanation/glossary.md" {
			chinese[english] = translated
		}
	}
	for english, translated := range chinese {
		texts := []string{page(t, english), page(t, translated)}
		assert.Equalf(t, codeOf(texts[0]), codeOf(texts[1]), "code of %s and %s", english, translated)
		for i, text := range texts {
			texts[i] = fencedBlock.ReplaceAllString(text, "")
		}
		assert.Lenf(t, headingLine.FindAllString(texts[1], -1), len(headingLine.FindAllString(texts[0], -1)), "headings of %s and %s", english, translated)
		assert.Lenf(t, tableRow.FindAllString(texts[1], -1), len(tableRow.FindAllString(texts[0], -1)), "table rows of %s and %s", english, translated)
	}
}

func codeOf(text string) (blocks []string) {
	for _, block := range fencedBlock.FindAllString(text, -1) {
		blocks = append(blocks, commentBehind.ReplaceAllString(block, ""))
	}
	return blocks
}

func TestDocsForUsersLeadToNoInternals(t *testing.T) {
	for _, source := range markdownPages(t) {
		if !strings.HasPrefix(source, "docs/") || strings.HasPrefix(source, "docs/internals/") {
			continue
		}
		for _, match := range markdownLink.FindAllStringSubmatch(page(t, source), -1) {
			assert.NotContains(t, match[1], "internals/", source)
		}
	}
}

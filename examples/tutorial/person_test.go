package tutorial

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/examples/internal/browser"
)

var (
	browserPart  = regexp.MustCompile(`(?s)<!-- browser -->\n\n(.*?)\n\n[^\d]`)
	numberedStep = regexp.MustCompile(`(?m)^\d+\. (.*)$`)
	sentenceEnd  = regexp.MustCompile(`\. |\.$`)
)

func sentencesOf(t *testing.T, page string) (sentences []string) {
	text, err := os.ReadFile(filepath.Join("../../docs/tutorials", page))
	require.NoError(t, err)
	part := browserPart.FindStringSubmatch(string(text))
	require.NotNil(t, part, "%s asks for no browser", page)
	for _, step := range numberedStep.FindAllStringSubmatch(part[1], -1) {
		// A full stop inside an address or a number does not end a sentence, because no space follows it.
		for _, sentence := range sentenceEnd.Split(step[1], -1) {
			if sentence != "" {
				sentences = append(sentences, sentence)
			}
		}
	}
	require.NotEmpty(t, sentences)
	return sentences
}

type person struct {
	tab                          *browser.Tab
	address, name, reason, label string
}

var rules = []struct {
	says *regexp.Regexp
	do   func(p *person, said []string)
}{
	{regexp.MustCompile("^Open `http://([^`]+)`$"), func(p *person, said []string) { p.address = said[1] }},
	{regexp.MustCompile("^Sign in as `(\\w+)` with the password `(\\w+)`$"), func(p *person, said []string) {
		p.name = said[1]
		p.tab.Do(chromedp.Navigate(fmt.Sprintf("http://%s:%s@%s", said[1], said[2], p.address)))
	}},
	{regexp.MustCompile(`^The page shows one case worth \w+ ([\d.]+)$`), func(p *person, said []string) { p.tab.Do(shown(said[1])) }},
	{regexp.MustCompile(`^Follow the link \*\*(.+)\*\*$`), func(p *person, said []string) {
		p.tab.Do(shown(said[1]))
		p.tab.Follow(`td.why a`)
	}},
	{regexp.MustCompile(`^The page lists the cases with this error$`), func(p *person, _ []string) { p.tab.Do(chromedp.WaitVisible(`input[name=seen]`)) }},
	{regexp.MustCompile(`^Choose the case, and press \*\*(\w+)\*\*$`), func(p *person, said []string) {
		p.label = said[1]
		p.tab.Do(chromedp.Click(`input[name=seen]`), chromedp.Click(button("contains(@class, 'lines')", said[1]), chromedp.BySearch))
	}},
	{regexp.MustCompile(`^A form shows what will happen$`), func(p *person, _ []string) {
		p.tab.Do(chromedp.WaitVisible(`form[action="/do"] textarea[name=reason]`))
	}},
	{regexp.MustCompile("^Type a reason, for example `([^`]+)`$"), func(p *person, said []string) {
		p.reason = said[1]
		p.tab.Do(chromedp.SendKeys(`form[action="/do"] textarea[name=reason]`, said[1]))
	}},
	{regexp.MustCompile(`^Press \*\*(\w+)\*\* in the form$`), func(p *person, said []string) {
		p.tab.Do(chromedp.Click(button("@action='/do'", said[1]), chromedp.BySearch))
	}},
	{regexp.MustCompile(`^The page says that it is done$`), func(p *person, _ []string) { p.tab.Do(shown("Done")) }},
	{regexp.MustCompile(`^Open \*\*(.+)\*\* at the top$`), func(p *person, said []string) {
		p.tab.Do(chromedp.Click(`//nav//a[contains(normalize-space(.), "`+said[1]+`")]`, chromedp.BySearch))
	}},
	{regexp.MustCompile(`^The audit log shows your name, the time and the reason$`), func(p *person, _ []string) {
		p.tab.Do(shown(p.reason), shown(p.name), chromedp.WaitReady(`//main//time`, chromedp.BySearch))
	}},
}

// A closed menu further down may contain a button with the same label.
func button(form, label string) string {
	return `(//form[` + form + `]//button[contains(normalize-space(.), "` + label + `")])[1]`
}

// follow fails at a sentence that matches no rule.
func (p *person) follow(t *testing.T, sentences []string, replacer *strings.Replacer) {
	for _, sentence := range sentences {
		sentence = replacer.Replace(sentence)
		known := false
		for _, rule := range rules {
			if said := rule.says.FindStringSubmatch(sentence); said != nil {
				rule.do(p, said)
				known = true
				break
			}
		}
		require.Truef(t, known, "the test does not know how to do %q", sentence)
	}
}

var (
	published = regexp.MustCompile(`"127\.0\.0\.1:\$\{(\w+)\}:(\d+)"`)
	rootWord  = regexp.MustCompile(`MARIADB_ROOT_PASSWORD: (\w+), MARIADB_DATABASE: (\w+)`)
	exported  = regexp.MustCompile(`(?s)<!-- with Docker -->\n` + "```sh\n" + `.*?\nexport SHOP_DSN="(\w+):(\w+)@tcp\(127\.0\.0\.1:\$(\w+)\)/(\w+)" SHOP_REDIS=127\.0\.0\.1:\$(\w+)\n`)
)

// TestDockerStepOfTheSecondTutorialFitsItsComposeFile compares the addresses, the password and the database that the page
// exports with the compose file. It needs no Docker.
func TestDockerStepOfTheSecondTutorialFitsItsComposeFile(t *testing.T) {
	for _, page := range []string{"../../docs/tutorials/mysql-redis.md", "../../docs/zh/tutorials/mysql-redis.md"} {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		compose, err := os.ReadFile("mysql/compose.yaml")
		require.NoError(t, err)
		require.Contains(t, string(text), "```yaml\n"+string(compose)+"```\n")
		ports := published.FindAllStringSubmatch(string(compose), -1)
		require.Len(t, ports, 2)
		secret, set := rootWord.FindStringSubmatch(string(compose)), exported.FindStringSubmatch(string(text))
		require.NotNil(t, secret)
		require.NotNil(t, set, "%s exports no addresses after docker compose", page)
		assert.Equal(t, []string{"root", secret[1], ports[0][1], secret[2], ports[1][1]}, set[1:], page)
		assert.Equal(t, []string{"3306", "6379"}, []string{ports[0][2], ports[1][2]})
		assert.Contains(t, string(text), "docker compose up --detach --wait\n")
		assert.Contains(t, string(text), "docker compose exec -T db mariadb -t -p"+secret[1]+" "+secret[2]+" ")
	}
}

package uitest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/ui"
)

const bookType = "book"

var bookView = ui.TypeView{ShowResult: []string{"reference"}}

type booking struct {
	Reference string `json:"reference"`
	Card      string `json:"card"`
}

// Failure: F131
func TestResultIsRevealedOnTheEntrysPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	long := booking{Reference: "R-" + strings.Repeat("7", 300), Card: "4111-1111"}
	book, err := compensator.HandleResult(t.Context(), w.c, bookType, func(context.Context, *compensator.Entry, string) (booking, error) { return long, nil }, nil)
	require.NoError(t, err)
	e := compensatortest.Call(t, w.c, book.Type, "order 42", compensator.Options{})
	require.Equal(t, compensator.Succeeded, e.State, e.LastError)
	b := openTab(t, w, "alice")
	for lang, says := range map[string]string{"en": "Result", "zh-CN": "返回值"} {
		for _, width := range []int64{1280, 360} {
			name := fmt.Sprintf("result-%s-%d", lang, width)
			b.look(lang, "light", width)
			b.open("entries/" + e.ID.String())
			assert.True(t, b.holds(fmt.Sprintf(`document.querySelector("main").innerText.includes(%q)`, says)), "%s: the size of the result", name)
			assert.False(t, b.holds(`document.querySelector("main").innerText.includes("R-7")`), "%s: nobody has revealed it", name)
			b.do(chromedp.Click(`a[href*="do=see"]`), b.until(`document.querySelector("#asked").open`),
				chromedp.SendKeys(`#asked [name="reason"]`, "the buyer asks"), chromedp.Click(`#asked button.main`))
			b.arrive(`document.querySelector("pre.result") !== null && !document.querySelector("#help").hidden`)
			assert.True(t, b.holds(fmt.Sprintf(`document.querySelector("pre.result").textContent.includes(%q)`, long.Reference)), name)
			assert.False(t, b.holds(`document.body.innerText.includes("4111") || document.body.innerText.includes("order 42")`), "%s: what the view does not name", name)
			b.arm()
			for _, scheme := range []string{"light", "dark"} {
				b.look(lang, scheme, width)
				b.photograph(name + "-" + scheme)
				b.accessible(name+"-"+scheme, wcag)
				b.requireFit(width, name)
			}
			b.quiet(name)
		}
	}
}

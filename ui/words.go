package ui

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/compensator-go/compensator"
)

type words struct {
	Lang  string // value of the html element's lang attribute
	texts map[string]string
	zone  *time.Location // zone of all times of the page; nil: UTC
}

var languages = []words{loadWords("en"), loadWords("zh-CN")}

func loadWords(lang string) words {
	w := words{Lang: lang}
	data, err := files.ReadFile("text/" + lang + ".json")
	if err == nil {
		err = json.Unmarshal(data, &w.texts)
	}
	if err != nil {
		panic(err) // The file is embedded and every test reads it, so this cannot happen.
	}
	return w
}

const languageCookie, themeCookie = "compensator_language", "compensator_theme"

func wordsFor(r *http.Request) words {
	if cookie, err := r.Cookie(languageCookie); err == nil {
		for _, w := range languages {
			if w.Lang == cookie.Value {
				return w
			}
		}
	}
	for tag := range strings.SplitSeq(r.Header.Get("Accept-Language"), ",") {
		tag, _, _ = strings.Cut(strings.TrimSpace(tag), ";")
		tag, _, _ = strings.Cut(strings.ToLower(tag), "-")
		for _, w := range languages {
			if languageTag, _, _ := strings.Cut(strings.ToLower(w.Lang), "-"); languageTag == tag {
				return w
			}
		}
	}
	return languages[0]
}

// T returns the text of a key. It replaces {0}, {1} and so on by args. A text with a number may have two forms: key.one
// and key.other.
func (w words) T(key string, args ...any) (string, error) {
	text, isFound := w.texts[key]
	if !isFound && len(args) > 0 {
		form := ".other"
		if fmt.Sprint(args[0]) == "1" {
			form = ".one"
		}
		text, isFound = w.texts[key+form]
	}
	if !isFound {
		return "", fmt.Errorf("ui: no text %q in %s", key, w.Lang)
	}
	if len(args) == 0 {
		return text, nil
	}
	pairs := make([]string, 0, 2*len(args))
	for i, arg := range args {
		pairs = append(pairs, "{"+strconv.Itoa(i)+"}", fmt.Sprint(arg))
	}
	return strings.NewReplacer(pairs...).Replace(text), nil
}

// The key of a message is the reason, with {0} in place of a rejected value in quotes.
func (w words) explainField(field *compensator.FieldError) string {
	reason := field.Reason
	value, err := strconv.QuotedPrefix(reason)
	if err == nil {
		reason = "{0}" + strings.TrimPrefix(reason, value)
	}
	return strings.NewReplacer("{0}", w.Word("field", field.Field), "{1}", strings.Replace(w.Word("problem", reason), "{0}", value, 1)).Replace(w.texts["wrong"])
}

// Word translates a stored word into the person's language. A word that only a later version knows stays unchanged.
func (w words) Word(kind string, word any) string {
	if text, isFound := w.texts[kind+"."+fmt.Sprint(word)]; isFound {
		return text
	}
	return fmt.Sprint(word)
}

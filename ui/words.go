package ui

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/compensator-go/compensator"
)

// words holds the texts of one language.
type words struct {
	Lang  string // value of the html element's lang attribute
	texts map[string]string
}

// languages lists the languages, the default first.
var languages = []words{load("en"), load("zh-CN")}

func load(lang string) words {
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

// wordsFor returns the language that the person has chosen. Without a choice it returns the browser's language, or else
// English.
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
			if have, _, _ := strings.Cut(strings.ToLower(w.Lang), "-"); have == tag {
				return w
			}
		}
	}
	return languages[0]
}

// T returns the text of a key. It replaces {0}, {1} and so on by args. A text with a number may have two forms: key.one
// and key.other.
func (w words) T(key string, args ...any) (string, error) {
	text, found := w.texts[key]
	if !found && len(args) > 0 {
		form := ".other"
		if fmt.Sprint(args[0]) == "1" {
			form = ".one"
		}
		text, found = w.texts[key+form]
	}
	if !found {
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

// wrong returns the message for a wrong value in a field. The text files have a message for each reason. If a reason
// begins with the rejected value in quotes, the key of its message has {0} in place of the value.
func (w words) wrong(field *compensator.FieldError) string {
	reason := field.Reason
	given, err := strconv.QuotedPrefix(reason)
	if err == nil {
		reason = "{0}" + strings.TrimPrefix(reason, given)
	}
	return strings.NewReplacer("{0}", w.Word("field", field.Field), "{1}", strings.Replace(w.Word("problem", reason), "{0}", given, 1)).Replace(w.texts["wrong"])
}

// Word translates a stored word into the person's language. A word that only a later version knows stays unchanged.
func (w words) Word(kind string, word any) string {
	if text, found := w.texts[kind+"."+fmt.Sprint(word)]; found {
		return text
	}
	return fmt.Sprint(word)
}

package httpcall

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/compensator-go/compensator/internal/usererr"
)

// PostJSON posts v as JSON, by Do with its key, and reads the answer's JSON into into, unless that is nil. Its error is what a handler returns, as it
// stands. What cannot be encoded, an address that is none, and an answer of a 2xx that cannot be read are plain errors, and count: the
// service may have done the work by then, and knows the call by its key when it comes again. An answer is read to 1 MiB.
func PostJSON(ctx context.Context, client *http.Client, address, key string, v, into any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode a request: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make a request: %w", withoutAddress(err))
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	answer, err := Do(client, request, key)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err == nil && into != nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("%s %s: read the answer, %s: %w", request.Method, request.URL.Host, answer.Status, err)
	}
	return nil
}

const maxAnswer = 1 << 20

var errNoAddress = errors.New("the address is none")

// withoutAddress is err without the address, or any part of it: a secret may be in each, and errors are kept.
func withoutAddress(err error) error {
	var about *url.Error
	if !usererr.As(err, &about) {
		return err
	}
	if strings.Contains(about.Err.Error(), `"`) { // it quotes a part, as what it takes for a port in http://user:secret/
		return errNoAddress
	}
	return about.Err
}

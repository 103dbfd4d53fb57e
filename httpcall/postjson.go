package httpcall

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// PostJSON posts v as JSON, by Do with its key, and reads the answer's JSON into into, unless that is nil. Its error is what a handler returns, as it
// stands. What cannot be encoded, an address that is none, and an answer of a 2xx that cannot be read are plain errors, and count: the
// service may have done the work by then, and knows the call by its key when it comes again. An answer is read to 1 MiB.
func PostJSON(ctx context.Context, client *http.Client, url, key string, v, into any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode a request: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
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

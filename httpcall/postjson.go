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
	"github.com/compensator-go/compensator/internal/verdict"
)

// PostJSON sends the parameter v as JSON in a POST request. It sends the request with the function Do, and passes the
// parameter key to Do. If the parameter into is not nil, PostJSON decodes the JSON answer into it. A handler can return
// the error of PostJSON unchanged. PostJSON reads up to 1 MiB of the answer.
//
// Three cases are plain errors and spend an attempt: v cannot be encoded, the address is invalid, or a 2xx answer
// cannot be decoded. If a 2xx answer cannot be decoded, the service has probably done the work, so the outcome is
// unknown (see Do).
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
	response, err := Do(client, request, key)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err == nil && into != nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return verdict.OutcomeUnknown(fmt.Errorf("%s %s: read the answer, %s: %w", request.Method, request.URL.Host, response.Status, err))
	}
	return nil
}

const maxAnswer = 1 << 20

var errNoAddress = errors.New("the address is none")

// withoutAddress removes the address, and every part of it, from err. Each part may hold a secret, and errors are
// stored.
func withoutAddress(err error) error {
	var urlErr *url.Error
	if !usererr.As(err, &urlErr) {
		return err
	}
	if strings.Contains(urlErr.Err.Error(), `"`) { // The text quotes a part of the address, for example a wrong port in http://user:secret/.
		return errNoAddress
	}
	return urlErr.Err
}

package encrypt

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/compensator-go/compensator"
)

// Key is a secret and its name, which stands in every content that it seals.
type Key struct {
	ID     string // 1 to 255 bytes; never another secret's
	Secret []byte // 32 random bytes
}

// Config of New.
type Config struct {
	Keys  []Key             // the first seals, all open
	Inner compensator.Codec // what is sealed. Default compensator.JSON

	// ReadPlain also reads content that is not sealed, as it was recorded before. It takes from content that somebody
	// writes into the table the proof that it is ours: leave it only until those entries have ended.
	ReadPlain bool
}

// ErrUnknownKey: the content names a key that is not among Config.Keys. The error's text has its id.
var ErrUnknownKey = errors.New("encrypt: the key is not here")

// ErrGarbled: the content was changed, is another entry's, or was sealed by another secret of the same key id; or it is not sealed
// at all, without Config.ReadPlain.
var ErrGarbled = errors.New("encrypt: the content is not what was sealed")

// Codec seals and opens. It is made by New and may be used concurrently, for several types.
type Codec struct {
	inner  compensator.Codec
	plain  bool
	newest *sealer
	byID   map[string]*sealer
}

var _ compensator.SealingCodec = (*Codec)(nil)

// New makes a Codec, or returns a *compensator.FieldError.
func New(cfg Config) (*Codec, error) {
	c := &Codec{inner: cfg.Inner, plain: cfg.ReadPlain, byID: make(map[string]*sealer)}
	if c.inner == nil {
		c.inner = compensator.JSON
	}
	if _, seals := c.inner.(compensator.SealingCodec); seals {
		return nil, &compensator.FieldError{Field: "Inner", Reason: "seals, too"}
	}
	for i, key := range cfg.Keys {
		field := fmt.Sprintf("Keys[%d]", i)
		switch {
		case key.ID == "" || len(key.ID) > 255:
			return nil, &compensator.FieldError{Field: field, Reason: fmt.Sprintf("id of %d bytes: want 1 to 255", len(key.ID))}
		case len(key.Secret) != 32:
			return nil, &compensator.FieldError{Field: field, Reason: fmt.Sprintf("%q: secret of %d bytes, want 32", key.ID, len(key.Secret))}
		case c.byID[key.ID] != nil:
			return nil, &compensator.FieldError{Field: field, Reason: fmt.Sprintf("%q is there twice", key.ID)}
		}
		s, err := newSealer(key)
		if err != nil {
			return nil, err
		}
		c.byID[key.ID] = s
		if i == 0 {
			c.newest = s
		}
	}
	if c.newest == nil {
		return nil, &compensator.FieldError{Field: "Keys", Reason: "want at least one"}
	}
	return c, nil
}

// Marshal is Inner's.
func (c *Codec) Marshal(v any) ([]byte, error) { return c.inner.Marshal(v) }

// Unmarshal is Inner's.
func (c *Codec) Unmarshal(data []byte, v any) error { return c.inner.Unmarshal(data, v) }

// Seal encrypts what Marshal has written, for an entry. It returns no error.
func (c *Codec) Seal(content []byte, businessType, idempotentID string) ([]byte, error) {
	return c.newest.seal(content, businessType, idempotentID), nil
}

// Open is the inverse of Seal. Its errors are ErrUnknownKey and ErrGarbled.
func (c *Codec) Open(content []byte, businessType, idempotentID string) ([]byte, error) {
	id, _, sealed := cut(content)
	if !sealed && c.plain && !strings.HasPrefix(string(content), mark) {
		return content, nil
	}
	if !sealed {
		return nil, fmt.Errorf("%w: it is not sealed", ErrGarbled)
	}
	s := c.byID[id]
	if s == nil {
		return nil, fmt.Errorf("%w: %q", ErrUnknownKey, id)
	}
	plain, err := s.open(content, businessType, idempotentID)
	if err != nil {
		return nil, fmt.Errorf("%w: key %q", ErrGarbled, id)
	}
	return plain, nil
}

// mark begins what is sealed: no JSON begins so, nor any text.
const mark = "\x00cs\x01"

// cut takes a sealed content apart: mark, length of the key's id, id; nonce and ciphertext, which is what is left.
func cut(data []byte) (id string, rest []byte, sealed bool) {
	if len(data) <= len(mark) || string(data[:len(mark)]) != mark {
		return "", nil, false
	}
	n := int(data[len(mark)])
	rest = data[len(mark)+1:]
	if n == 0 || len(rest) < n {
		return "", nil, false
	}
	return string(rest[:n]), rest[n:], true
}

// sealer is one key at work.
type sealer struct {
	head  []byte
	aead  cipher.AEAD
	nonce []byte // the key of nonces
}

func newSealer(key Key) (*sealer, error) {
	derive := func(what string) ([]byte, error) {
		return hkdf.Key(sha256.New, key.Secret, nil, "compensator/encrypt "+what, 32)
	}
	content, err := derive("content")
	if err != nil {
		return nil, err
	}
	nonce, err := derive("nonce")
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(content)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	head := append([]byte(mark), byte(len(key.ID)))
	return &sealer{head: append(head, key.ID...), aead: aead, nonce: nonce}, nil
}

// seal draws no nonce but computes it, from all that is sealed: the receipt of an event that is recorded twice compares contents.
// Two different contents get the same one no more likely than two draws would.
func (s *sealer) seal(plain []byte, businessType, idempotentID string) []byte {
	bound := s.bound(businessType, idempotentID)
	mac := hmac.New(sha256.New, s.nonce)
	mac.Write(bound)
	mac.Write(plain)
	nonce := mac.Sum(nil)[:s.aead.NonceSize()]
	out := make([]byte, 0, len(s.head)+len(nonce)+len(plain)+s.aead.Overhead())
	out = append(append(out, s.head...), nonce...)
	return s.aead.Seal(out, nonce, plain, bound)
}

func (s *sealer) open(data []byte, businessType, idempotentID string) ([]byte, error) {
	_, rest, _ := cut(data)
	if len(rest) < s.aead.NonceSize() {
		return nil, ErrGarbled
	}
	nonce, ciphertext := rest[:s.aead.NonceSize()], rest[s.aead.NonceSize():]
	return s.aead.Open(nil, nonce, ciphertext, s.bound(businessType, idempotentID))
}

// bound is what the content is tied to, with lengths, so that no two read the same.
func (s *sealer) bound(businessType, idempotentID string) []byte {
	out := append([]byte(nil), s.head...)
	for _, part := range []string{businessType, idempotentID} {
		out = binary.BigEndian.AppendUint32(out, uint32(len(part)))
		out = append(out, part...)
	}
	return out
}

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

// Key is a secret with its name. Every content that it seals contains the name.
type Key struct {
	ID     string // 1 to 255 bytes. Never reuse it for another secret
	Secret []byte // 32 random bytes
}

// Config configures New.
type Config struct {
	Keys  []Key             // the first key encrypts, and each of the keys decrypts
	Inner compensator.Codec // codec whose output is encrypted. Default compensator.JSON

	// ReadPlain also accepts content that is not encrypted, for entries that were recorded before you introduced
	// encryption. With ReadPlain the Codec also accepts plain content that an attacker writes into the table. So unset
	// ReadPlain when the earlier entries have ended.
	ReadPlain bool
}

// ErrUnknownKey says that Config.Keys lacks the key of the content. The text has the id of the key.
var ErrUnknownKey = errors.New("encrypt: the key is not here")

// ErrGarbled says that the content cannot be opened. It was changed, belongs to another entry, or was sealed by another
// secret with the same key id. It is also the error for content that is not sealed if Config.ReadPlain is not set.
var ErrGarbled = errors.New("encrypt: the content is not what was sealed")

// Codec seals and opens contents. Create it with New. It is safe for concurrent use, and may serve several types.
type Codec struct {
	inner        compensator.Codec
	acceptsPlain bool
	newest       *sealer
	byID         map[string]*sealer
}

var _ compensator.SealingCodec = (*Codec)(nil)

// New returns a Codec. If a field of cfg is invalid, or Keys is empty, the error is a *compensator.FieldError.
func New(cfg Config) (*Codec, error) {
	c := &Codec{inner: cfg.Inner, acceptsPlain: cfg.ReadPlain, byID: make(map[string]*sealer)}
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

// Marshal calls Config.Inner.
func (c *Codec) Marshal(v any) ([]byte, error) { return c.inner.Marshal(v) }

// Unmarshal calls Config.Inner.
func (c *Codec) Unmarshal(data []byte, v any) error { return c.inner.Unmarshal(data, v) }

// Seal encrypts the output of Marshal for one entry. It never returns an error.
func (c *Codec) Seal(content []byte, businessType, idempotencyKey string) ([]byte, error) {
	return c.newest.seal(content, businessType, idempotencyKey), nil
}

// Open decrypts the output of Seal. It returns only the errors ErrUnknownKey and ErrGarbled.
func (c *Codec) Open(content []byte, businessType, idempotencyKey string) ([]byte, error) {
	id, _, sealed := cut(content)
	if !sealed && c.acceptsPlain && !strings.HasPrefix(string(content), mark) {
		return content, nil
	}
	if !sealed {
		return nil, fmt.Errorf("%w: it is not sealed", ErrGarbled)
	}
	s := c.byID[id]
	if s == nil {
		return nil, fmt.Errorf("%w: %q", ErrUnknownKey, id)
	}
	plaintext, err := s.open(content, businessType, idempotencyKey)
	if err != nil {
		return nil, fmt.Errorf("%w: key %q", ErrGarbled, id)
	}
	return plaintext, nil
}

// mark starts sealed content. No JSON and no text starts with it.
const mark = "\x00cs\x01"

// cut splits sealed content into the id of its key and the rest. Sealed content consists of the mark, the length of the
// id, the id, the nonce, and the ciphertext. The rest holds the nonce and the ciphertext.
func cut(data []byte) (id string, remainder []byte, sealed bool) {
	if len(data) <= len(mark) || string(data[:len(mark)]) != mark {
		return "", nil, false
	}
	n := int(data[len(mark)])
	remainder = data[len(mark)+1:]
	if n == 0 || len(remainder) < n {
		return "", nil, false
	}
	return string(remainder[:n]), remainder[n:], true
}

// sealer seals and opens with one key.
type sealer struct {
	head  []byte
	aead  cipher.AEAD
	nonce []byte // key for computing nonces, derived from the secret
}

func newSealer(key Key) (*sealer, error) {
	derive := func(purpose string) ([]byte, error) {
		return hkdf.Key(sha256.New, key.Secret, nil, "compensator/encrypt "+purpose, 32)
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

// seal computes the nonce from everything that it seals. It uses no random nonce. So an event that is recorded twice
// has the same content, and the receipt can compare contents. Two different contents have the same nonce no more often
// than with random nonces.
func (s *sealer) seal(plaintext []byte, businessType, idempotencyKey string) []byte {
	associated := s.associatedData(businessType, idempotencyKey)
	mac := hmac.New(sha256.New, s.nonce)
	mac.Write(associated)
	mac.Write(plaintext)
	nonce := mac.Sum(nil)[:s.aead.NonceSize()]
	buffer := make([]byte, 0, len(s.head)+len(nonce)+len(plaintext)+s.aead.Overhead())
	buffer = append(append(buffer, s.head...), nonce...)
	return s.aead.Seal(buffer, nonce, plaintext, associated)
}

func (s *sealer) open(data []byte, businessType, idempotencyKey string) ([]byte, error) {
	_, remainder, _ := cut(data)
	if len(remainder) < s.aead.NonceSize() {
		return nil, ErrGarbled
	}
	nonce, ciphertext := remainder[:s.aead.NonceSize()], remainder[s.aead.NonceSize():]
	return s.aead.Open(nil, nonce, ciphertext, s.associatedData(businessType, idempotencyKey))
}

// associatedData returns the additional data that binds the content to its entry. The length of each part comes before
// the part, because otherwise two different pairs of type and key could have the same data.
func (s *sealer) associatedData(businessType, idempotencyKey string) []byte {
	buffer := append([]byte(nil), s.head...)
	for _, part := range []string{businessType, idempotencyKey} {
		buffer = binary.BigEndian.AppendUint32(buffer, uint32(len(part)))
		buffer = append(buffer, part...)
	}
	return buffer
}

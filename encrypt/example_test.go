package encrypt_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"log/slog"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/encrypt"
)

// The log holds only ciphertext. A program that has the key decodes the content as before.
func ExampleNew() {
	ctx := context.Background()
	secret := bytes.Repeat([]byte{7}, 32) // from your secret store: 32 random bytes
	codec := compensator.Must(encrypt.New(encrypt.Config{Keys: []encrypt.Key{{ID: "2026-11", Secret: secret}}}))
	c := compensator.Must(compensator.New(ctx, compensator.Config{ // a real service sets DB and Redis
		Store: compensatortest.NewMemoryStore(), Logger: slog.New(slog.DiscardHandler),
	}))
	defer c.Close()
	letters := compensator.Must(compensator.Declare[string](ctx, c, "letter", &compensator.TypeConfig{Codec: codec}))
	err := c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := letters.Record(ctx, tx, "Dear Ann", compensator.Options{IdempotencyKey: "letter-42"})
		return err
	})
	if err != nil {
		log.Fatal(err)
	}

	e := compensator.Must(c.Get(ctx, compensator.IdempotencyKey("letter-42")))
	fmt.Println("readable in the log:", bytes.Contains(e.Content, []byte("Ann")))
	var text string
	if err := e.Decode(&text); err != nil {
		log.Fatal(err)
	}
	fmt.Println(text)
	// Output:
	// readable in the log: false
	// Dear Ann
}

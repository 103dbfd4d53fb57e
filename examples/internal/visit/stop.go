package visit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/examples/internal/crowd"
	"github.com/compensator-go/compensator/examples/internal/shop"
)

// StopAmidBuyers lets n buyers send purchases without a pause, and stops the service after the first accepted purchase.
func (v *Visit) StopAmidBuyers(n int) (tickets []string) {
	v.T.Helper()
	var buyers sync.WaitGroup
	var mu sync.Mutex // guards tickets
	begun := make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	for i := range n {
		buyers.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for n := 0; ; n++ {
				body, _ := json.Marshal(shop.Purchase{Buyer: fmt.Sprintf("b%d-%d", i, n), Goods: "phone"})
				response, err := client.Post("http://"+v.Address+"/seckill", "application/json", bytes.NewReader(body))
				if err != nil {
					return // The service no longer listens.
				}
				var answer crowd.Answered
				err = json.NewDecoder(response.Body).Decode(&answer)
				_ = response.Body.Close()
				assert.NoError(v.T, err, "an answer is complete")
				if response.StatusCode == http.StatusAccepted {
					mu.Lock()
					tickets = append(tickets, answer.Ticket)
					mu.Unlock()
					begin()
				}
			}
		})
	}
	<-begun
	require.NoError(v.T, v.Stop())
	buyers.Wait()
	return tickets
}

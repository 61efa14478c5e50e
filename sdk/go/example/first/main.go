package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	plimsoll "plimsoll.dev/go"
)

var table = plimsoll.NewMutex("table")

func report(ctx context.Context) error {
	ctx, task := plimsoll.Start(ctx, "GET /report")
	defer task.End()

	table.Lock(ctx) // accounted for: who holds it, who waits
	defer table.Unlock()
	for row := int64(0); row < 1000; row++ {
		task.Progress(row, 1000)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Millisecond): // a row's work
		}
	}
	return nil
}

func main() {
	defer plimsoll.Open("shop").Close()
	var cancelled *plimsoll.Cancelled
	switch err := report(context.Background()); {
	case errors.As(err, &cancelled):
		fmt.Println("cancelled because", cancelled.Reason)
	case err == nil:
		fmt.Println("done")
	}
}

// Package plimsoll keeps account of what the tasks of an application hold and wait for, and cancels the one that holds up all others
// when the agent (`plimsoll agent`) names it.
//
// A task is what can be cancelled: a request, a session, a background job. It lives in a context, and is cancelled through it:
//
//	ctx, task := plimsoll.Start(ctx, "GET /report")
//	defer task.End()
//
// A resource is what tasks fight over: a lock, a pool, a cache. [Mutex], [RWMutex], [Semaphore] and [Pool] account for themselves:
//
//	var table = plimsoll.NewMutex("table")
//
//	table.Lock(ctx)
//	defer table.Unlock()
//
// Of anything else, tell a [Use]: what was taken, given back and waited for. When the agent cancels a task, its context ends, and
// [context.Cause] is a [*Cancelled] that says why.
//
// The application never notices any of this. Where there is no ledger, because there is no directory to write to or no room, tasks go unaccounted: [Start]
// returns the context that it was given and a nil task, whose methods do nothing, like those of every nil *Use. Nothing here
// returns an error for it, blocks or panics, and each cause is logged once.
package plimsoll

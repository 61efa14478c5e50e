//go:build !(linux && (amd64 || arm64 || loong64 || mips64le || ppc64le || riscv64))

// Where there is no ledger: the format needs Linux, 64-bit words and little-endian numbers. Applications build and run, unaccounted.
package ledger

import (
	"errors"
	"time"
)

var errNone = errors.New("ledgers need Linux on a 64-bit little-endian processor")

// File is a ledger and the file that it lies in.
type File struct {
	*Ledger
	Path string
}

// Create fails.
func Create(string, Counts, About, bool, func() uint64) (*File, error) { return nil, errNone }

// Remove does nothing.
func (*File) Remove() error { return errNone }

// Directory fails.
func Directory() (string, error) { return "", errNone }

// CheckDirectory fails.
func CheckDirectory(string) error { return errNone }

// Self fails.
func Self(string, func() uint64) (About, error) { return About{}, errNone }

// Clock is a time in ns since it was asked for.
func Clock() func() uint64 {
	origin := time.Now()
	return func() uint64 { return uint64(time.Since(origin)) + 1 }
}

// ThreadID is unknown.
func ThreadID() uint32 { return 0 }

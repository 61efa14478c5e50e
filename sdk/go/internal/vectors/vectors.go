// Package vectors finds the test vectors of the ledger: sdk/vectors, or $PLIMSOLL_VECTORS.
package vectors

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// File is the path of a vector.
func File(name string) string {
	if directory := os.Getenv("PLIMSOLL_VECTORS"); directory != "" {
		return filepath.Join(directory, name)
	}
	_, here, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(here), "../../../vectors", name)
}

// Read is what a vector says.
func Read(t *testing.T, name string) []byte {
	t.Helper()
	bytes, err := os.ReadFile(File(name))
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

// Names are the vectors that end in this, without it. There must be some.
func Names(t *testing.T, ending string) (names []string) {
	t.Helper()
	paths, err := filepath.Glob(File("*" + ending))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no vectors: %s (%v)", File("*"+ending), err)
	}
	for _, path := range paths {
		names = append(names, strings.TrimSuffix(filepath.Base(path), ending))
	}
	return names
}

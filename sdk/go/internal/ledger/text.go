// Texts as the ledger keeps them: UTF-8, cut at the end of a character, padded with zero bytes.
package ledger

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// cut is as much of a text as fits into length bytes: valid UTF-8, and nothing after a zero byte, which would be taken for its end.
func cut(text string, length int) string {
	if i := strings.IndexByte(text, 0); i >= 0 {
		text = text[:i]
	}
	if len(text) > length {
		end := length
		for end > length-utf8.UTFMax && !utf8.RuneStart(text[end]) {
			end--
		}
		text = text[:end]
	}
	if !utf8.ValidString(text) {
		text = cut(strings.ToValidUTF8(text, "?"), length)
	}
	return text
}

// text is what a padded text says.
func text(padded []byte) string {
	if i := bytes.IndexByte(padded, 0); i >= 0 {
		padded = padded[:i]
	}
	return string(padded)
}

// Name is the name of a resource as the ledger keeps it.
func Name(name string) string { return cut(name, nameLen) }

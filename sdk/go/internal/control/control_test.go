package control

import (
	"bufio"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"plimsoll.dev/go/internal/vectors"
)

// meaning is what a line says, as control.txt writes it.
func meaning(line Line) string {
	switch said := line.(type) {
	case Welcome:
		return fmt.Sprintf("welcome version=%d mode=%s", said.Version, said.Mode)
	case Refused:
		return "refused text=" + said.Text
	case Cancel:
		return fmt.Sprintf("cancel id=%d task=%d turn=%d resource=%d text=%s", said.ID, said.Task, said.Turn, said.Resource, said.Text)
	case Rerun:
		return fmt.Sprintf("rerun id=%d", said.ID)
	case Drop:
		return fmt.Sprintf("drop id=%d", said.ID)
	}
	return "ignored"
}

// said is the line that says this on the SDK's side.
func said(t *testing.T, meaning string) string {
	var id uint64
	var word, file, rest string
	word, rest, _ = strings.Cut(meaning, " ")
	scan := func(format string, into ...any) {
		if _, err := fmt.Sscanf(rest, format, into...); err != nil {
			t.Fatalf("%q: %v", meaning, err)
		}
	}
	switch word {
	case "hello":
		scan("version=1 file=%s", &file)
		return Hello(file)
	case "acknowledge":
		scan("id=%d", &id)
		return Acknowledge(id)
	case "outcome":
		scan("id=%d word=%s", &id, &word)
		_, text, _ := strings.Cut(rest, " text=")
		return Outcome(id, Word(word), text)
	case "reran":
		scan("id=%d", &id)
		return Reran(id)
	case "dropped":
		scan("id=%d", &id)
		return Dropped(id)
	}
	t.Fatalf("what is %q?", meaning)
	return ""
}

// control is the lines of control.txt that a side sends, each with what it says.
func control(t *testing.T, side string) (lines [][2]string) {
	t.Helper()
	all := strings.Split(string(vectors.Read(t, "control.txt")), "\n")
	for i, line := range all {
		if line, ok := strings.CutPrefix(line, side+" "); ok {
			lines = append(lines, [2]string{line, strings.TrimPrefix(all[i+1], "= ")})
		}
	}
	if len(lines) < 5 {
		t.Fatalf("only %d lines of the %s", len(lines), side)
	}
	return lines
}

func TestVectorLinesOfTheAgent(t *testing.T) {
	for _, line := range control(t, "agent") {
		if got := meaning(Parse(line[0])); got != line[1] {
			t.Errorf("%q says %q, want %q", line[0], got, line[1])
		}
	}
}

func TestVectorLinesOfTheSDK(t *testing.T) {
	for _, line := range control(t, "sdk") {
		if line[1] != "ignored" {
			if got := said(t, line[1]); got != line[0] {
				t.Errorf("%q, want %q", got, line[0])
			}
		}
	}
}

func TestOutcomeIsALine(t *testing.T) {
	for _, text := range []string{"two\nlines\r\n", strings.Repeat("x", 3000), strings.Repeat("größer ", 400), "\xff\xfe", strings.Repeat("\xff", 2000), "\x00\x7f"} {
		line := Outcome(1, Failed, text)
		if len(line) >= LineLimit || !utf8.ValidString(line) || strings.ContainsAny(line, "\n\r\x00\x7f") || !strings.HasPrefix(line, "outcome 1 failed ") {
			t.Errorf("%.40q gives %q", text, line)
		}
	}
}

// A line that is understood says what it says: written again, it is understood the same.
func FuzzParse(f *testing.F) {
	for _, line := range []string{"welcome 1 enforce", "refused no", "cancel 1 0 1 0 why", "cancel 18446744073709551615 131071 1 255", "rerun 7", "drop 8", "rerun +7", "", " "} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		first := Parse(line)
		if first == nil {
			return
		}
		var again string
		switch said := first.(type) {
		case Welcome:
			again = fmt.Sprintf("welcome %d %s", said.Version, said.Mode)
		case Refused:
			again = "refused " + said.Text
		case Cancel:
			if said.Task > 131071 || said.Resource > 255 {
				t.Fatalf("%q: %+v", line, said)
			}
			again = fmt.Sprintf("cancel %d %d %d %d %s", said.ID, said.Task, said.Turn, said.Resource, said.Text)
		case Rerun:
			again = fmt.Sprintf("rerun %d", said.ID)
		case Drop:
			again = fmt.Sprintf("drop %d", said.ID)
		default:
			t.Fatalf("%q is a %T", line, first)
		}
		if second := Parse(again); second != first && len(again) < LineLimit {
			t.Errorf("%q: %+v, and %q: %+v", line, first, again, second)
		}
	})
}

// dialled is both ends of a connection.
func dialled(t *testing.T) (*Conn, net.Conn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	other, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	return conn, other
}

func TestConnection(t *testing.T) {
	conn, other := dialled(t)
	conn.Say(Hello("shop.1.ledger"))
	conn.Say(Reran(7))
	in := bufio.NewScanner(other)
	for _, want := range []string{"hello 1 shop.1.ledger", "reran 7"} {
		if !in.Scan() || in.Text() != want {
			t.Errorf("%q (%v), want %q", in.Text(), in.Err(), want)
		}
	}
	fmt.Fprintf(other, "dance\n\nrerun x\nrer")
	fmt.Fprintf(other, "un 7\n%s\n", "refused "+strings.Repeat("x", LineLimit-len("refused \n")))
	if line, err := conn.Hear(); line != (Rerun{7}) || err != nil {
		t.Errorf("%v, %v", line, err)
	}
	if line, err := conn.Hear(); err != nil || len(line.(Refused).Text) != LineLimit-9 {
		t.Errorf("%v, %v", line, err)
	}
	fmt.Fprint(other, strings.Repeat("x", LineLimit+1))
	if line, err := conn.Hear(); line != nil || err == nil || !strings.Contains(err.Error(), "more than 1024") {
		t.Errorf("%v, %v", line, err)
	}
}

// What was said before the end is heard.
func TestLastWords(t *testing.T) {
	for range 100 {
		conn, other := dialled(t)
		conn.Say(Acknowledge(1))
		conn.Say(Outcome(1, Cancelled, ""))
		conn.Close()
		in := bufio.NewScanner(other)
		for _, want := range []string{"acknowledge 1", "outcome 1 cancelled"} {
			if !in.Scan() || in.Text() != want {
				t.Fatalf("%q (%v), want %q", in.Text(), in.Err(), want)
			}
		}
		if in.Scan() {
			t.Errorf("then %q", in.Text())
		}
		<-conn.Gone()
		if line, err := conn.Hear(); err == nil {
			t.Errorf("heard %v", line)
		}
	}
}

// An agent that does not listen loses the connection, and nobody who speaks to it waits.
func TestDeafAgent(t *testing.T) {
	conn, _ := dialled(t)
	line := strings.Repeat("x", 1000)
	for said := 0; ; said++ {
		select {
		case <-conn.Done():
			conn.Say(line)
			return
		default:
			if said > 100_000 {
				t.Fatal("it is still there")
			}
			conn.Say(line)
		}
	}
}

package bus

import (
	"bytes"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"errand/internal/retry"
)

type pipe struct{ net.Conn }

func (p pipe) Dial(string, string) (net.Conn, error) { return p.Conn, nil }

// gatheringPipe is a connection that gathers its writes, and its server's end.
func gatheringPipe(t *testing.T) (conn, server net.Conn) {
	ours, server := net.Pipe()
	conn, err := gathering{pipe{ours}}.Dial("", "")
	if err != nil {
		t.Fatal(err)
	}
	return conn, server
}

func TestWritesLeaveTogetherAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, server := gatheringPipe(t)
		var want []byte
		for i := range 100 {
			b := bytes.Repeat([]byte{byte(i)}, 100)
			want = append(want, b...)
			if _, err := conn.Write(b); err != nil {
				t.Fatal(err)
			}
		}
		_, _ = conn.Write([]byte("last"))
		go conn.Close()
		var got []byte
		reads := 0
		for b := make([]byte, 2*len(want)); ; reads++ {
			n, err := server.Read(b)
			if got = append(got, b[:n]...); err != nil {
				break
			}
		}
		if !bytes.Equal(got, append(want, "last"...)) || reads > 50 {
			t.Errorf("the server got %d bytes in %d reads, want %d in order and in fewer", len(got), reads, len(want)+4)
		}
	})
}

// The library's own deadlines no longer bound a write, so the connection must notice a server that takes nothing.
func TestAServerThatTakesNothingIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _ := gatheringPipe(t)
		_ = conn.SetDeadline(time.Time{})
		began := time.Now()
		_, _ = conn.Write(make([]byte, maxGathered+1))
		synctest.Wait()
		_ = conn.SetDeadline(time.Time{}) // as the library does after its handshake
		if _, err := conn.Read(make([]byte, 1)); err == nil || time.Since(began) != retry.NATSWrite {
			t.Errorf("reading ended after %v with %v, want an error after %v", time.Since(began), err, retry.NATSWrite)
		}
		if _, err := conn.Write([]byte("x")); err == nil {
			t.Error("a lost connection takes more")
		}
	})
}

func TestClosingWaitsNotLongForAServerThatTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _ := gatheringPipe(t)
		began := time.Now()
		_, _ = conn.Write(make([]byte, maxGathered+1))
		synctest.Wait()
		blocked := make(chan error)
		go func() {
			_, err := conn.Write(make([]byte, maxGathered+1)) // has room: the first is under way
			if err == nil {
				_, err = conn.Write([]byte("x"))
			}
			blocked <- err
		}()
		synctest.Wait()
		_ = conn.Close()
		if took := time.Since(began); took > retry.LastWrite {
			t.Errorf("closing took %v, want %v at most", took, retry.LastWrite)
		}
		if err := <-blocked; err == nil {
			t.Error("a writer that waited for room was told that it had written")
		}
	})
}

func TestWhatIsWrittenDuringAnotherWriteFollowsItUnchanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, server := gatheringPipe(t)
		defer conn.Close()
		for round := range 4 { // the buffers are used again
			for _, b := range []byte{'a', 'b'} {
				if _, err := conn.Write(bytes.Repeat([]byte{b + byte(2*round)}, 100)); err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // the first is under way
			}
			_ = server.SetReadDeadline(time.Now().Add(time.Second))
			got := make([]byte, 200)
			n, err := io.ReadFull(server, got)
			a := byte('a' + 2*round)
			if want := append(bytes.Repeat([]byte{a}, 100), bytes.Repeat([]byte{a + 1}, 100)...); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("round %d: the server got %q, %v; want %q", round, got[:n], err, want)
			}
		}
	})
}

// A writer waits while too much is gathered, until the server takes some of it or is lost.
func TestAWriterWaitsForRoomNoLongerThanItMust(t *testing.T) {
	for _, takes := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			conn, server := gatheringPipe(t)
			for range 2 { // one is under way, one waits
				_, _ = conn.Write(make([]byte, maxGathered+1))
				synctest.Wait()
			}
			wrote := make(chan error, 1)
			go func() {
				_, err := conn.Write([]byte("x"))
				wrote <- err
			}()
			synctest.Wait()
			if len(wrote) > 0 {
				t.Fatal("it did not wait")
			}
			if takes {
				_, _ = io.ReadFull(server, make([]byte, maxGathered+1))
			}
			select {
			case err := <-wrote:
				if (err == nil) != takes {
					t.Errorf("the server takes what is written: %t, and writing ended with %v", takes, err)
				}
			case <-time.After(retry.NATSWrite + time.Second):
				t.Errorf("the server takes what is written: %t, and the writer waits on", takes)
			}
			go func() { _, _ = io.Copy(io.Discard, server) }()
			_ = conn.Close()
		})
	}
}

package loopback

import "testing"

func TestOnlyThisMachineIsLoopback(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LocalHost": true, "127.0.0.1": true, "127.9.8.7": true, "::1": true, "::ffff:127.0.0.1": true,
		"": false, "localhost.example.com": false, "localhost.": false, "127.0.0.1.example.com": false, "127.1": false, "0.0.0.0": false,
		"10.0.0.1": false, "::": false, "[::1]": false, "example.com": false,
	} {
		if got := Is(host); got != want {
			t.Errorf("%q: got %t", host, got)
		}
	}
}

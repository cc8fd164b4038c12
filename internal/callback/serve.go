package callback

import (
	"net"
	"net/http"
	"sync/atomic"

	"golang.org/x/net/netutil"

	"errand/internal/retry"
)

const (
	// maxConnections is how many connections are open at once; others wait to be accepted.
	maxConnections = 512
	// maxHeader is how large the line and the headers of a request may be, give or take 4 KiB. Many short headers take
	// twenty times as much memory, and anybody may send those on each of the connections: 512 then take some 140 MiB.
	maxHeader = 8 << 10
)

// Server returns the server of a handler, and the listener to serve on. No connection is kept for long: one that sends nothing, or
// slowly, is closed, and while half of them are open each answer closes its connection.
func Server(handler *Handler, listener net.Listener) (*http.Server, net.Listener) {
	var open atomic.Int64
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if open.Load() > maxConnections/2 {
				w.Header().Set("Connection", "close")
			}
			handler.ServeHTTP(w, r)
		}),
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				open.Add(1)
			case http.StateClosed:
				open.Add(-1)
			}
		},
		DisableGeneralOptionsHandler: true, // OPTIONS * is answered like any other path
		MaxHeaderBytes:               maxHeader,
		ReadHeaderTimeout:            retry.AdminRead, ReadTimeout: retry.CallbackRead,
		WriteTimeout: retry.CallbackRead + 2*retry.Callback, IdleTimeout: retry.AdminIdle,
	}
	return server, netutil.LimitListener(listener, maxConnections)
}

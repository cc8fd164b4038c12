// Command log-poller reads the email service's sending log and tells each new state
// of each entry as a delivery event.
package main

import "errand/internal/app"

func main() {
	app.Main("log-poller", "Turns the email service's sending log into mail.delivery events.", new(app.LogPoller))
}

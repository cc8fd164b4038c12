// Command callback-receiver takes what the e-mandate service sends to the return_url of
// enrollments, and publishes it as mandate.callback.received events.
package main

import (
	"errand/internal/programs"
)

func main() {
	programs.Main("callback-receiver",
		"Takes the e-mandate service's callbacks, GET and POST on …/<request id>/<token>, and publishes them as mandate.callback.received "+
			"events. That is the return_url which mandate-consumer gives to enrollments, below MANDATE_CALLBACK_URL.",
		new(programs.CallbackReceiver))
}

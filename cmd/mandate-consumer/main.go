// Command mandate-consumer takes enrollments and transaction listings from NATS
// JetStream, runs them against the e-mandate service and publishes the outcomes.
package main

import "errand/internal/programs"

func main() {
	programs.Main("mandate-consumer",
		"Runs mandate.enroll.requested and mandate.transactions.requested against the e-mandate service and publishes the outcomes.",
		new(programs.MandateConsumer))
}

// Command mandate-consumer takes enrollments and transaction listings from NATS
// JetStream, runs them against the e-mandate service and publishes the outcomes.
package main

import "errand/internal/app"

func main() {
	app.Main("mandate-consumer", "Runs mandate.enroll.requested and mandate.transactions.requested against the e-mandate service and publishes the outcomes.", new(app.MandateConsumer))
}

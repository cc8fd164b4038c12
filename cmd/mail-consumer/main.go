// Command mail-consumer takes messages to send and account queries from NATS
// JetStream, runs them against the email service and publishes the outcomes.
package main

import "errand/internal/programs"

func main() {
	programs.Main("mail-consumer", "Runs mail.send.requested and mail.account.requested against the email service and publishes the outcomes.",
		new(programs.MailConsumer))
}

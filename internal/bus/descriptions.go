package bus

// descriptions say what streams and consumers are for, where another tool lists them. An operator's stay.
var descriptions = map[string]string{
	MandateRequests: "errand: requests about mandates, until they have an outcome",
	MandateEvents:   "errand: what happened to each request about mandates; keeps payers from being enrolled twice",
	MailRequests:    "errand: requests about mail, until they have an outcome",
	MailEvents:      "errand: what happened to each request about mail; keeps mail from being sent twice",
	MailDeliveries:  "errand: what the sending log says of each mail, and what log-poller needs to know",
	DeadLetters:     "errand: requests that failed or are of unknown fate, as they were published",
	RateLeases:      "errand: the last leases of FLEET_RATE",
	Audit:           "errand: who did what to which request or queue, and why",

	EnrollQueue.Name:       "errand: mandate-consumer takes enrollments from here",
	TransactionsQueue.Name: "errand: mandate-consumer takes listings of transactions from here",
	SendQueue.Name:         "errand: mail-consumer takes messages from here",
	AccountQueue.Name:      "errand: mail-consumer takes questions about the account from here",
}

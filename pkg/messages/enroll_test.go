package messages

// enrollSample is a usual request.
const enrollSample = `{"request_id":"a-1","order_number":"DD001","amount":"100.50","payer_id_type":1,
"payer_id":"900101011234","payer_name":"Test Payer","payer_email":"payer@example.test",
"payer_telephone_number":"60190000000","frequency_mode":"MT","max_frequency":9,
"application_reason":"Enrollment for DD001","effective_date":"2026-01-02",
"return_url":"https://shop.example/return","success_url":"https://shop.example/ok?order=1"}`

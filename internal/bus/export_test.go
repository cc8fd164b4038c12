package bus

// ReadAck is for tests.
var ReadAck = readAck

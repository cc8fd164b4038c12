package poll
import ("testing";"time";"os";"fmt")
func init(){ go func(){ for { time.Sleep(2*time.Second); if U!=nil { U.mu.Lock(); fmt.Fprintln(os.Stderr, len(U.calls), len(U.rows), U.most, last(U.calls)); U.mu.Unlock()} } }() }
var U *upstream
func last(s []string) []string { if len(s)>30 {return s[len(s)-30:]}; return s}
func TestZ(t *testing.T){}

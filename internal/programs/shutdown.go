package programs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"errand/internal/retry"
)

var errGrace = errors.New("SHUTDOWN_GRACE ended before everything in flight had finished; requests that had not will be delivered again")

// work runs all runs until ctx ends and what is in flight is settled, or the grace period ends. If one fails, all stop.
func (r *runtime) work(ctx context.Context, grace time.Duration, runs ...func(ctx, hard context.Context) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	hard, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	r.ready.started()
	r.log.Info().Msg("ready")
	errs := make(chan error, len(runs))
	for _, run := range runs {
		go func() { errs <- run(ctx, hard) }() // waited for below
	}
	patience := context.AfterFunc(ctx, func() {
		r.log.Info().Dur("grace", grace).Msg("stopping: what is in flight finishes first")
		timer := time.AfterFunc(grace, func() { end(errGrace) })
		context.AfterFunc(hard, func() { timer.Stop() })
	})
	defer patience()
	var failed []error
	for range runs {
		if err := <-errs; err != nil {
			failed = append(failed, err)
			stop(err)
		}
	}
	if errors.Is(context.Cause(hard), errGrace) {
		failed = append(failed, errGrace)
	}
	if r.nc.IsConnected() { // otherwise there is nothing to wait for
		if err := r.nc.FlushTimeout(retry.Flush); err != nil && r.nc.IsConnected() {
			failed = append(failed, fmt.Errorf("nats: flush the last acknowledgements: %w", err))
		}
	}
	sending, sent := context.WithTimeout(hard, retry.SpansSent) // hard ends with the grace period
	r.tracer.Close(sending)
	sent()
	if len(failed) == 0 {
		r.log.Info().Msg("stopped, nothing is left in flight")
	}
	return errors.Join(failed...)
}

// close releases what the program holds, the last one first.
func (r *runtime) close() {
	for _, release := range slices.Backward(r.cleanups) {
		release()
	}
}

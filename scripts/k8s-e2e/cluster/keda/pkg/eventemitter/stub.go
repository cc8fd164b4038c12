// Package eventemitter has what its kept files use of those that are cut out.
package eventemitter

import "errors"

// NewAzureEventGridTopicHandler is called for a sink that is cut out.
func NewAzureEventGridTopicHandler(...any) (EventDataHandler, error) {
	return nil, errors.New("this sink is cut out of this build")
}

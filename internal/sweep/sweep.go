// Package sweep reads a paged, growing list again and again, and has each state of each
// of its rows published once.
package sweep

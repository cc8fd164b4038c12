package main

import "context"

type demo struct{}

func (*demo) Run(context.Context) error { return nil }

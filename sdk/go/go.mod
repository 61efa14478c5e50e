module plimsoll.dev/go

go 1.22

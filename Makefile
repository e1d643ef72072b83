# The two commands of the quick start, under the names people try first.
.PHONY: test demo all
test:
	./tools/test
all:
	./tools/test --all
demo:
	./tools/demo

# Builds the thread that reads sockets: `make --file speedups/reader.mk INTO=FOLDER`.
# `sanitize` drives it from C, under the sanitizers of the compiler.

CC ?= cc
INTO ?= build/speedups
DIALECT := -std=gnu11 -g -Wall -Wextra -Werror -pthread

$(INTO)/agentload_reader.so: speedups/reader.c speedups/reader.mk
	@mkdir -p $(INTO)
	$(CC) $(DIALECT) -O2 -fPIC -shared -o $@ $<

.PHONY: sanitize
sanitize:
	@mkdir -p $(INTO)
	$(CC) $(DIALECT) -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -o $(INTO)/driver speedups/reader_driver.c
	$(INTO)/driver
	$(CC) $(DIALECT) -O1 -fsanitize=thread -o $(INTO)/driver speedups/reader_driver.c
	$(INTO)/driver
	rm $(INTO)/driver

# Builds the thread that reads sockets: `make --file speedups/reader.mk INTO=FOLDER`.

CC ?= cc
INTO ?= build/speedups
SANITIZE ?=

$(INTO)/agentload_reader.so: speedups/reader.c speedups/reader.mk
	@mkdir -p $(INTO)
	$(CC) -std=gnu11 -O2 -g -Wall -Wextra -Werror -fPIC -shared -pthread -o $@ $<

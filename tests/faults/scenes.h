/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * scenes -- short programs that use pinion's public calls, for faults to hit.
 *
 * A scene opens a context, uses it, closes everything, and ends with 0 or with
 * the error of the first call that failed. Whatever arrived was compared byte
 * by byte: -EBADMSG is a fault of pinion's, whatever was injected.
 *
 * Some scenes have a partner, another process in which nothing is injected. It
 * plays its part once for each time that the scene is played, and is told by
 * a socket.
 */
#ifndef PN_TESTS_FAULTS_SCENES_H
#define PN_TESTS_FAULTS_SCENES_H

#include <stdbool.h>
#include <sys/types.h>

struct scene {
	const char *name;
	const char *help;
	const char *option; /* "helper=own", or NULL */
	int (*play)(struct scene *scene);
	int (*partner)(struct scene *scene); /* NULL: plays alone */

	bool is_partner;  /* this process plays the partner's part */
	bool greeted;	  /* the other process was told an address, or none */
	bool parts_later; /* the other process has not yet been heard to end */
	int socket;	  /* to the other process */
	char failed[128]; /* the call that failed */
};

/* Whether the caller's registrar of a scene refuses now. NULL: never. */
extern bool (*scene_registrar_refuses)(void);

extern struct scene scenes[];
extern const unsigned nscenes;

/* The scene of a name. Ends the program if there is none. */
struct scene *scene_find(const char *name);

/* Starts the process that plays the partner, if the scene has one, and ends it.
 * scene_end_partner() returns the status of the process; 0: it ended well. */
pid_t scene_start_partner(struct scene *scene);
int scene_end_partner(struct scene *scene, pid_t pid);

/* Plays the part of this process once: 0, or the error of scene->failed.
 * -EPIPE: the other process is gone. -ECONNABORTED: it has failed. */
int scene_play(struct scene *scene);

/* Plays the partner until the other process ends the connection. */
void scene_accompany(struct scene *scene);

/* How the partner's part of the last play ended: 0 or a negative errno; -EPIPE:
 * the partner is gone. Sleeps until it has ended. */
int scene_partner_result(struct scene *scene);

#endif

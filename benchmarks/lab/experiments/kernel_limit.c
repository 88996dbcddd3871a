/* limit THREADS CROPS FILE...: how many JPEGs per second the kernel's own C makes with no Python.
 *
 * CROPS holds, for one JPEG after the other, the number of its FILE, as an int32, and a Crop. Every
 * thread decodes its part of them into batches of its own, again and again, for two seconds. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "jpeg/jpeg.h"

enum { SIDE = 224, ROWS = 64, BATCHES = 4, MOST_THREADS = 64 };
static const double SECONDS = 2;

typedef struct {
    uint8_t *start;
    size_t bytes;
} Content;

typedef struct {
    int32_t file;
    Crop crop;
} Wanted;

static Content *contents;
static Wanted *wanted;
static long images;
static atomic_long next, decoded;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static Content read_all(const char *path) {
    Content content = {NULL, 0};
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END)) exit(2);
    content.bytes = (size_t)ftell(file);
    rewind(file);
    content.start = malloc(content.bytes);
    if (content.start == NULL || fread(content.start, 1, content.bytes, file) != content.bytes)
        exit(2);
    fclose(file);
    return content;
}

static void *work(void *unused) {
    size_t batch_bytes = (size_t)ROWS * SIDE * SIDE * 3;
    uint8_t *memory = malloc(BATCHES * batch_bytes);
    Decoder *decoder = decoder_new();
    if (memory == NULL || decoder == NULL) exit(2);
    double end = now() + SECONDS;
    for (long i = 0; now() < end; i++) {
        const Wanted *one = &wanted[next++ % images];
        Batch batch = {memory + (size_t)(i / ROWS % BATCHES) * batch_bytes, ROWS, SIDE, SIDE, 0, NULL};
        Crop crop = one->crop;
        crop.row = (int32_t)(i % ROWS);
        const Content *jpeg = &contents[one->file];
        if (decoder_decode(decoder, jpeg->start, jpeg->bytes, &crop, &batch) != DECODED) exit(3);
        decoded++;
    }
    decoder_free(decoder);
    free(memory);
    return unused;
}

int main(int count, char **arguments) {
    if (count < 4) return 2;
    int threads = atoi(arguments[1]);
    pthread_t ids[MOST_THREADS];
    if (threads < 1 || threads > MOST_THREADS) return 2;
    Content crops = read_all(arguments[2]);
    wanted = (Wanted *)crops.start;
    images = (long)(crops.bytes / sizeof(Wanted));
    contents = calloc((size_t)count, sizeof *contents);
    if (contents == NULL || images == 0) return 2;
    for (int i = 3; i < count; i++) contents[i - 3] = read_all(arguments[i]);
    double started = now();
    for (int i = 0; i < threads; i++)
        if (pthread_create(&ids[i], NULL, work, NULL)) return 2;
    for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    printf("%.1f\n", (double)decoded / (now() - started));
    return 0;
}

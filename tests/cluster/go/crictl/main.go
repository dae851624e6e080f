// A stand-in for crictl, which no package registry offers. It knows the two calls that kind makes on a node.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	socket  = "unix:///run/containerd/containerd.sock"
	timeout = 10 * time.Second
	usage   = "this stand-in knows only: crictl images, and crictl inspecti IMAGE"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "crictl:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	connection, err := grpc.NewClient(socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	images := cri.NewImageServiceClient(connection)

	switch {
	case len(arguments) == 2 && arguments[0] == "inspecti":
		return inspect(ctx, images, arguments[1])
	case len(arguments) == 1 && arguments[0] == "images":
		return list(ctx, images)
	default:
		return errors.New(usage)
	}
}

func inspect(ctx context.Context, images cri.ImageServiceClient, name string) error {
	answer, err := images.ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: name}})
	if err != nil {
		return err
	}
	if answer.Image == nil {
		return fmt.Errorf("no such image %q present", name)
	}
	encoder := json.NewEncoder(os.Stdout)
	return encoder.Encode(map[string]any{"status": map[string]any{
		"id":          answer.Image.Id,
		"repoTags":    answer.Image.RepoTags,
		"repoDigests": answer.Image.RepoDigests,
		"size":        fmt.Sprint(answer.Image.Size),
		"pinned":      answer.Image.Pinned,
	}})
}

func list(ctx context.Context, images cri.ImageServiceClient) error {
	answer, err := images.ListImages(ctx, &cri.ListImagesRequest{})
	if err != nil {
		return err
	}
	fmt.Println("IMAGE\tIMAGE ID\tSIZE")
	for _, image := range answer.Images {
		fmt.Printf("%v\t%.20s\t%d\n", image.RepoTags, image.Id, image.Size)
	}
	return nil
}
